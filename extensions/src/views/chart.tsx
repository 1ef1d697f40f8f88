// Curves of the trials of a run: the best ones, the chosen ones, a band of all; further metrics beside them.
import { useMemo, useRef } from "preact/hooks";
import { csvOf, distanceFromBest, drawingOf, drawnOf, isFlat } from "../chart_drawing";
import { saveFile, type Controller } from "../controller";
import { counterpartOf } from "../counterpart";
import { NO_DRAWING } from "../drawing";
import { formatCount, formatMetric, formatNumber } from "../format";
import type { LinesPlot } from "../plot";
import type { ChartState, State, ViewState } from "../state";
import { showsFront } from "../subscription";
import { tabOf } from "../tabs";
import { Front, useLooks } from "./analysis";
import { Legend } from "./chart_legend";
import { ChartOptions } from "./chart_options";
import { Notice } from "./components";
import { PlotBox } from "./plot_box";

interface ChartProps {
  controller: Controller;
  throughput?: boolean;
}

const AXES = ["step", "epoch", "time"] as const;

export function Chart({ controller, throughput = false }: ChartProps) {
  const { chart, view, run, further } = controller.state;
  const plot = useRef<LinesPlot>();
  const metric = view.chart.metric || chart?.update.metric || run?.metrics[0] || "";
  const hasFurther = !throughput && controller.form !== "output";
  const beside = hasFurther ? view.chart.further.flatMap((name) => further.get(name) ?? []) : [];
  const other = view.chart.withOther ? counterpartOf(metric, run?.metrics ?? []) : null;
  const save = async (kind: "png" | "csv") => {
    if (!chart) return;
    const name = `${run?.run_id ?? "run"}-${chart.update.metric}.${kind}`;
    if (kind === "csv") return saveFile(new Blob([csvOf(chart)], { type: "text/csv;charset=utf-8" }), name);
    const named = run ? (run.name === run.run_id ? run.run_id : `${run.name} (${run.run_id})`) : "";
    const metrics = [chart.update.metric, ...(other === null || throughput ? [] : [other])].join(", ");
    const image = await plot.current?.image([metrics, named].filter(Boolean).join(" · "));
    if (image) saveFile(image, name);
  };
  const tab = controller.form === "wide" ? tabOf(controller.state) : null;
  if (!throughput && showsFront(controller.state, tab)) return <FrontChart controller={controller} />;
  return (
    <section class="workbench-chart" aria-label={throughput ? "Throughput" : "Convergence"}>
      <Controls controller={controller} throughput={throughput} metric={metric} onSave={(kind) => void save(kind)} />
      <div class={`workbench-chart-body${beside.length ? " workbench-chart-grid" : ""}`}>
        <OneChart
          controller={controller}
          chart={chart}
          other={throughput || other === null ? null : (further.get(other) ?? null)}
          caption={beside.length ? metric : null}
          plotRef={plot}
        />
        {beside.map((one) => (
          <OneChart
            key={one.update.metric}
            controller={controller}
            chart={one}
            other={null}
            caption={one.update.metric}
          />
        ))}
      </div>
      {throughput || !chart ? null : <FlatHint controller={controller} chart={chart} />}
      {chart ? <Legend controller={controller} chart={chart} /> : <div class="workbench-legend" />}
    </section>
  );
}

/** Where the curves look flat, another axis shows what still happens. */
function FlatHint({ controller, chart }: { controller: Controller; chart: ChartState }) {
  const { run, view } = controller.state;
  const { logarithmic, distance } = view.chart;
  if (logarithmic || distance || controller.form === "output" || !isFlat(chart)) return null;
  const change = (part: Partial<ViewState["chart"]>) => controller.show({ chart: { ...view.chart, ...part } });
  const isPositive = [...chart.curves.values()].every(({ y, length }) =>
    y.subarray(0, length).every((one) => !(one <= 0)),
  );
  return (
    <Notice name={`${run?.run_id} ${chart.update.metric} flat`}>
      The curves are nearly flat after their first half.{" "}
      <button type="button" onClick={() => change({ distance: true, low: null, high: null })}>
        Show the distance from the best
      </button>{" "}
      {isPositive && chart.update.goal === "minimize" ? (
        <button type="button" onClick={() => change({ logarithmic: true })}>
          Use a logarithmic axis
        </button>
      ) : null}
    </Notice>
  );
}

/** With several objectives the front comes first, and the curves of a metric on request. */
function FrontChart({ controller }: { controller: Controller }) {
  const { analysis } = controller.state;
  const looks = useLooks(controller, analysis);
  return (
    <section class="workbench-chart" aria-label="Pareto front">
      <div class="workbench-bar workbench-chart-controls">
        <MetricSelect controller={controller} metric="" />
      </div>
      <div class="workbench-chart-body">
        <figure class="workbench-chart-one">
          {analysis && analysis.objectives.length > 1 && analysis.trials.length ? (
            <Front controller={controller} data={analysis} looks={looks} first={0} second={1} />
          ) : (
            <p class="workbench-chart-empty">No trial has finished with all objectives.</p>
          )}
        </figure>
      </div>
      <div class="workbench-legend" />
    </section>
  );
}

function MetricSelect({ controller, metric }: { controller: Controller; metric: string }) {
  const { run, view } = controller.state;
  const known = run?.metrics ?? [];
  const metrics = metric === "" || known.includes(metric) ? known : [metric, ...known];
  return (
    <select
      aria-label="Metric"
      value={metric}
      onChange={(event) =>
        controller.show({ chart: { ...view.chart, metric: event.currentTarget.value, low: null, high: null } })
      }
    >
      {run?.front ? <option value="">front</option> : null}
      {metrics.map((name) => (
        <option key={name} value={name}>
          {formatMetric(name)}
        </option>
      ))}
    </select>
  );
}

interface OneChartProps {
  controller: Controller;
  chart: ChartState | null;
  other: ChartState | null;
  caption: string | null;
  plotRef?: { current: LinesPlot | undefined };
}

function OneChart({ controller, chart, other, caption, plotRef }: OneChartProps) {
  const { state, theme } = controller;
  const { view } = state;
  const drawing = useMemo(() => {
    if (!chart) return NO_DRAWING;
    const plain = drawingOf(chart, view, theme, other);
    const best = chart.best?.length ? chart.best.y[chart.best.length - 1] : null;
    const drawn =
      view.chart.distance && best !== null
        ? distanceFromBest(plain, best, `${chart.update.metric}, distance from ${formatNumber(best)}`)
        : plain;
    // The limits belong to the first metric.
    return plotRef ? drawn : { ...drawn, yLimits: undefined };
  }, [chart, other, theme, view.trial, view.chart]);
  return (
    <figure class="workbench-chart-one">
      {caption === null ? null : (
        <figcaption>
          <bdi>{caption}</bdi>
        </figcaption>
      )}
      <PlotBox
        drawing={drawing}
        theme={theme}
        label={labelOf(chart)}
        onChoose={(key, add) => controller.chooseTrial(Number(key), add)}
        plotRef={plotRef}
      />
      {chart && !drawnOf(chart).length ? (
        <p class="workbench-chart-empty">{whyEmpty(chart, controller.state)}</p>
      ) : null}
    </figure>
  );
}

interface ControlsProps {
  controller: Controller;
  throughput: boolean;
  metric: string;
  onSave(kind: "png" | "csv"): void;
}

function Controls({ controller, throughput, metric, onSave }: ControlsProps) {
  const { run, chart, view } = controller.state;
  const change = (part: Partial<ViewState["chart"]>) => controller.show({ chart: { ...view.chart, ...part } });
  return (
    <div class="workbench-bar workbench-chart-controls">
      {throughput ? <h2>Samples per second</h2> : <MetricSelect controller={controller} metric={metric} />}
      <select
        aria-label="Horizontal axis"
        value={view.chart.axis || chart?.update.axis || ""}
        onChange={(event) => change({ axis: event.currentTarget.value as ViewState["chart"]["axis"] })}
      >
        {(run?.axes ?? AXES).map((axis) => (
          <option key={axis} value={axis}>
            {axis === "epoch" && chart?.update.x_title === "Round" ? "by round" : `by ${axis}`}
          </option>
        ))}
      </select>
      <select
        aria-label="Trials in the chart"
        value={view.chart.shown}
        onChange={(event) => change({ shown: event.currentTarget.value as ViewState["chart"]["shown"] })}
      >
        <option value="best">best trials</option>
        <option value="chosen">selected trials</option>
        <option value="all">all trials</option>
      </select>
      <ChartOptions controller={controller} metric={metric} throughput={throughput} onSave={onSave} />
      {view.chart.chosen.length || view.trial !== null ? (
        <button type="button" class="workbench-quiet" onClick={() => controller.chooseTrial(null)}>
          Clear selection
        </button>
      ) : null}
    </div>
  );
}

function whyEmpty({ update }: ChartState, { view, run }: State): string {
  if (view.chart.shown === "chosen" && !view.chart.chosen.length) return "Select trials in the table below.";
  if (update.num_trials) return "No number was reported.";
  return run?.ended_unix_s == null ? "No trial has reported this yet." : "No trial reported this.";
}

function labelOf(chart: ChartState | null): string {
  if (!chart) return "No curves yet";
  const { update, best } = chart;
  const last = best && best.length ? best.y[best.length - 1] : null;
  const value = last === null ? "" : `; best so far ${formatNumber(last)}`;
  const trial = update.best_trial == null ? "" : ` by trial ${update.best_trial}`;
  return `${update.y_title} by ${update.x_title}, ${formatCount(update.num_trials, "trial")}${value}${trial}`;
}
