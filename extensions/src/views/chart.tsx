// Curves of the trials of a run: the best ones, the chosen ones, a band of all.
import { useMemo } from "preact/hooks";
import type { Controller } from "../controller";
import { Curve } from "../curve";
import { formatCount, formatNumber } from "../format";
import type { Drawing, Line } from "../drawing";
import type { ChartState, ViewState } from "../state";
import type { Theme } from "../theme";
import { PlotBox } from "./plot_box";

interface ChartProps {
  controller: Controller;
  throughput?: boolean;
}

const NO_DRAWING: Drawing = {
  lines: [],
  band: null,
  target: null,
  xTitle: "",
  yName: "",
  yRange: null,
  xKind: "number",
  logarithmic: false,
};

export function Chart({ controller, throughput = false }: ChartProps) {
  const { state, theme } = controller;
  const { chart, view } = state;
  const drawing = useMemo(
    () => (chart ? drawingOf(chart, view, theme) : NO_DRAWING),
    [state.chartVersion, theme, view.trial, view.chart],
  );
  return (
    <section class="workbench-chart" aria-label={throughput ? "Throughput" : "Convergence"}>
      <Controls controller={controller} throughput={throughput} />
      <div class="workbench-chart-body">
        <PlotBox
          drawing={drawing}
          theme={theme}
          label={labelOf(chart)}
          onChoose={(key, add) => controller.chooseTrial(Number(key), add)}
        />
        {chart && !drawnOf(chart).length ? <p class="workbench-chart-empty">{whyEmpty(chart, view)}</p> : null}
      </div>
      {chart ? <Legend chart={chart} /> : <div class="workbench-legend" />}
    </section>
  );
}

function Controls({ controller, throughput }: Required<ChartProps>) {
  const { run, chart, view } = controller.state;
  const change = (part: Partial<ViewState["chart"]>) => controller.show({ chart: { ...view.chart, ...part } });
  const metric = view.chart.metric || chart?.update.metric || run?.metrics[0] || "";
  const metrics = run?.metrics ?? [];
  return (
    <div class="workbench-bar workbench-chart-controls">
      {throughput ? (
        <h2>Samples per second</h2>
      ) : (
        <select aria-label="Metric" value={metric} onChange={(event) => change({ metric: event.currentTarget.value })}>
          {(metrics.includes(metric) ? metrics : [metric, ...metrics]).map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      )}
      <select
        aria-label="Horizontal axis"
        value={view.chart.axis || chart?.update.axis || ""}
        onChange={(event) => change({ axis: event.currentTarget.value as ViewState["chart"]["axis"] })}
      >
        <option value="step">by step</option>
        <option value="epoch">by epoch</option>
        <option value="time">by time</option>
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
      {controller.form === "output" ? null : (
        <label class="workbench-check">
          <input
            type="checkbox"
            checked={view.chart.logarithmic}
            onChange={(event) => change({ logarithmic: event.currentTarget.checked })}
          />
          log
        </label>
      )}
      {view.chart.chosen.length || view.trial !== null ? (
        <button type="button" class="workbench-quiet" onClick={() => controller.chooseTrial(null)}>
          Clear selection
        </button>
      ) : null}
    </div>
  );
}

function Legend({ chart }: { chart: ChartState }) {
  const { update } = chart;
  const drawn = drawnOf(chart);
  const states = [...new Set(update.states.filter((_, index) => drawn.includes(update.shown[index])))];
  const unseen = update.shown.length - drawn.length;
  return (
    <div class="workbench-legend">
      {update.best_trial == null ? null : (
        <span>
          <i class="workbench-key workbench-key-best" aria-hidden="true" /> best: trial {update.best_trial}
        </span>
      )}
      {chart.best ? (
        <span>
          <i class="workbench-key workbench-key-stair" aria-hidden="true" /> best so far
        </span>
      ) : null}
      {states.map((state) => (
        <span key={state}>
          <i class={`workbench-key workbench-key-state workbench-state-${state}`} aria-hidden="true" /> {state}
        </span>
      ))}
      {chart.band ? (
        <span>
          <i class="workbench-key workbench-key-band" aria-hidden="true" /> spread of {chart.band.numTrials} trials
        </span>
      ) : null}
      <span class="workbench-gap" />
      {update.num_trials ? (
        <span class="workbench-number">
          {drawn.length} of {formatCount(update.num_trials, "trial")} drawn
          {unseen ? `, ${unseen} reported no number` : ""}
        </span>
      ) : null}
    </div>
  );
}

/** Trials with a curve on the screen: one of nothing but NaN has none. */
function drawnOf({ update, curves }: ChartState): number[] {
  return update.shown.filter((trial) => curves.get(trial)?.isVisible);
}

function whyEmpty({ update }: ChartState, view: ViewState): string {
  if (view.chart.shown === "chosen" && !view.chart.chosen.length) return "Select trials in the table below.";
  return update.num_trials ? "No number was reported." : "No trial has reported this yet.";
}

function drawingOf(chart: ChartState, view: ViewState, theme: Theme): Drawing {
  const { update } = chart;
  return {
    lines: linesOf(chart, view, theme),
    band: chart.band,
    target: update.target ?? null,
    xTitle: update.x_title,
    yName: update.metric,
    yRange: update.y_range ?? null,
    xKind: update.axis === "step" ? "whole" : "number",
    logarithmic: view.chart.logarithmic,
  };
}

/** In the order of drawing: many faint ones, the best so far, those that somebody chose, the best. */
function linesOf(chart: ChartState, view: ViewState, theme: Theme): Line[] {
  const { update, curves } = chart;
  const crowded = update.shown.length > 20;
  const chosen = [...view.chart.chosen];
  if (view.trial !== null && !chosen.includes(view.trial)) chosen.push(view.trial);
  const plain: Line[] = [];
  const marked: Line[] = [];
  update.shown.forEach((trial, index) => {
    const curve = curves.get(trial) ?? new Curve();
    const state = update.states[index];
    const line: Line = {
      key: String(trial),
      label: `Trial ${trial}, ${state}`,
      curve,
      colour: theme.states[state] ?? theme.muted,
      width: crowded ? 1 : 1.4,
      opacity: state === "running" ? 0.95 : crowded ? 0.5 : 0.7,
    };
    const place = chosen.indexOf(trial);
    if (place < 0 && trial !== update.best_trial) return plain.push(line);
    const isBest = trial === update.best_trial;
    const colour = isBest ? theme.best : theme.categories[place % theme.categories.length];
    return marked.push({
      ...line,
      colour,
      width: isBest ? 3 : 2.2,
      opacity: 1,
      name: `#${trial}`,
      label: isBest ? `${line.label}, best` : line.label,
    });
  });
  const stair: Line[] = chart.best
    ? [
        {
          key: "best",
          label: "best so far",
          curve: chart.best,
          colour: theme.ink,
          width: 1.3,
          opacity: 0.8,
          dashed: true,
          stepped: true,
          silent: true,
        },
      ]
    : [];
  return [...plain, ...stair, ...marked];
}

function labelOf(chart: ChartState | null): string {
  if (!chart) return "No curves yet";
  const { update, best } = chart;
  const last = best && best.length ? best.y[best.length - 1] : null;
  const value = last === null ? "" : `; best so far ${formatNumber(last)}`;
  const trial = update.best_trial == null ? "" : ` by trial ${update.best_trial}`;
  return `${update.y_title} by ${update.x_title}, ${formatCount(update.num_trials, "trial")}${value}${trial}`;
}
