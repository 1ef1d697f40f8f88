// Several runs beside each other: the best so far, one chart per metric, and a table of what differs.
import { useMemo } from "preact/hooks";
import type { Controller } from "../controller";
import type { Drawing } from "../drawing";
import { formatCount, formatMetric } from "../format";
import type { ComparedCurve, ComparisonState, ViewState } from "../state";
import { categoryOf, type Theme } from "../theme";
import { ComparisonTable } from "./comparison_table";
import { Empty } from "./components";
import { PlotBox } from "./plot_box";
import { RunAdder } from "./run_adder";

const AXES: [axis: ViewState["comparison"]["axis"], label: string][] = [
  ["time", "by time"],
  ["epoch", "by epoch"],
  ["trial", "by trial"],
  ["cost", "by cost (worker time)"],
];

export function Comparison({ controller }: { controller: Controller }) {
  const { state, theme } = controller;
  const { compared } = state;
  const isNone = !state.view.compared.length;
  return (
    <section class="workbench-comparison" aria-label="Comparison of runs">
      <Controls controller={controller} />
      {isNone ? (
        <Empty title="No runs to compare">
          <p>Tick runs in the list, or add them above by name or pattern, such as digits-*.</p>
        </Empty>
      ) : compared ? (
        <>
          <Charts controller={controller} compared={compared} theme={theme} />
          <ComparisonTable controller={controller} compared={compared} />
        </>
      ) : (
        <Empty title="Reading the runs …" />
      )}
    </section>
  );
}

function Controls({ controller }: { controller: Controller }) {
  const { view, compared } = controller.state;
  const { comparison } = view;
  const change = (part: Partial<ViewState["comparison"]>) =>
    controller.show({ comparison: { ...comparison, ...part } });
  const metrics = compared?.update.metrics ?? [];
  const known = comparison.metric && !metrics.includes(comparison.metric) ? [comparison.metric, ...metrics] : metrics;
  return (
    <div class="workbench-bar workbench-chart-controls">
      <select
        aria-label="Metric to compare"
        value={comparison.metric}
        onChange={(event) => change({ metric: event.currentTarget.value })}
      >
        <option value="">objective of each run</option>
        {known.map((name) => (
          <option key={name} value={name}>
            {formatMetric(name)}
          </option>
        ))}
      </select>
      <select
        aria-label="Axis of the comparison"
        value={comparison.axis}
        onChange={(event) => change({ axis: event.currentTarget.value as ViewState["comparison"]["axis"] })}
      >
        {AXES.map(([axis, label]) => (
          <option key={axis} value={axis}>
            {label}
          </option>
        ))}
      </select>
      <RunAdder controller={controller} />
    </div>
  );
}

interface ChartsProps {
  controller: Controller;
  compared: ComparisonState;
  theme: Theme;
}

function Charts({ controller, compared, theme }: ChartsProps) {
  const charts = useMemo(() => drawingsOf(compared, theme), [compared, theme]);
  return (
    <div class="workbench-comparison-charts">
      {charts.map(({ metric, drawing }) => (
        <figure key={metric} class="workbench-comparison-chart">
          <figcaption>
            <bdi>{drawing.yName}</bdi>
          </figcaption>
          <PlotBox
            drawing={drawing}
            theme={theme}
            label={`${drawing.yName} of ${formatCount(drawing.lines.length, "run")}, ${drawing.xTitle}`}
            onChoose={(runId) => controller.openRun(runId)}
          />
        </figure>
      ))}
    </div>
  );
}

function drawingsOf({ update, curves }: ComparisonState, theme: Theme): { metric: string; drawing: Drawing }[] {
  const metrics = [...new Set(update.runs.map(({ metric }) => metric))];
  const isDuration = update.axis === "time" || update.axis === "cost";
  return metrics.map((metric) => {
    const shown = curves.map((one, index) => ({ ...one, index })).filter(({ run }) => run.metric === metric);
    return {
      metric,
      drawing: {
        lines: shown.map(({ index, ...one }) => lineOf(one, index, theme)),
        band: null,
        target: null,
        xTitle: update.x_title,
        yName: `best ${metric} so far`,
        yRange: null,
        xKind: isDuration ? "seconds" : isWhole(shown) ? "whole" : "number",
        logarithmic: false,
      },
    };
  });
}

function lineOf({ run, curve }: ComparedCurve, index: number, theme: Theme) {
  return {
    key: run.run_id,
    label: run.label,
    curve,
    colour: categoryOf(index, theme),
    width: 2.2,
    opacity: 1,
    stepped: true,
    dashed: index >= theme.categories.length,
  };
}

function isWhole(curves: ComparedCurve[]): boolean {
  return curves.every(({ curve }) => curve.isWhole);
}
