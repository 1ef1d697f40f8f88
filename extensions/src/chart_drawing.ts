// What the chart of a run draws: the curves of its trials in the order in which they cover each other.
import { Curve } from "./curve";
import type { Drawing, Line } from "./drawing";
import type { ChartState, ViewState } from "./state";
import type { Theme } from "./theme";

/** Keys of the legend besides the states of trials. */
export const BEST = "best";
export const STAIR = "best so far";
export const BAND = "spread";

/** `other` is the metric of training for one of validation, drawn dashed for the trials that stand out. */
export function drawingOf(chart: ChartState, view: ViewState, theme: Theme, other: ChartState | null = null): Drawing {
  const { update } = chart;
  const { low, high, hidden, logarithmic } = view.chart;
  const lines = linesOf(chart, view, theme, other);
  const isWhole = update.axis === "step" || (update.axis === "epoch" && lines.every(({ curve }) => curve.isWhole));
  return {
    lines,
    band: hidden.includes(BAND) ? null : chart.band,
    target: update.target ?? null,
    xTitle: update.x_title,
    yName: update.metric,
    yRange: update.y_range ?? null,
    yLimits: [low, high],
    xKind: isWhole ? "whole" : "number",
    logarithmic,
  };
}

/** In the order of drawing: many faint ones, the best so far, those that somebody chose, the best. */
function linesOf(chart: ChartState, view: ViewState, theme: Theme, other: ChartState | null): Line[] {
  const { update, curves } = chart;
  const { hidden, smoothing } = view.chart;
  const crowded = update.shown.length > 20;
  const chosen = [...view.chart.chosen];
  if (view.trial !== null && !chosen.includes(view.trial)) chosen.push(view.trial);
  const plain: Line[] = [];
  const marked: Line[] = [];
  update.shown.forEach((trial, index) => {
    const raw = curves.get(trial) ?? new Curve();
    const state = update.states[index];
    const isNoResult = update.no_result?.includes(trial) ?? false;
    const isBest = trial === update.best_trial && !hidden.includes(BEST);
    const line: Line = {
      key: String(trial),
      label: `Trial ${trial}, ${state}${isNoResult ? ", no result: it breaks a limit or missed its target" : ""}`,
      curve: raw.smoothed(smoothing),
      colour: isNoResult ? theme.states.stopped : (theme.states[state] ?? theme.muted),
      width: crowded ? 1 : 1.4,
      opacity: state === "running" ? 0.95 : crowded ? 0.5 : 0.7,
      // A trial that still runs is distinguished without its colour.
      dotted: state === "running" || isNoResult,
    };
    const place = chosen.indexOf(trial);
    if (place < 0 && !isBest) {
      if (!hidden.includes(state)) plain.push(line);
      return;
    }
    const colour = isBest ? theme.best : theme.categories[place % theme.categories.length];
    const thick: Line = {
      ...line,
      colour,
      width: isBest ? 3 : 2.2,
      opacity: 1,
      dotted: false,
      name: `#${trial}`,
      label: isBest ? `${line.label}, best` : line.label,
    };
    if (smoothing) marked.push({ ...thick, curve: raw, width: 1, opacity: 0.35, name: undefined, silent: true });
    const beside = other?.curves.get(trial);
    if (other && beside) {
      const curve = beside.smoothed(smoothing);
      marked.push({
        ...thick,
        curve,
        width: 1.6,
        dashed: true,
        name: undefined,
        label: `Trial ${trial}, ${other.update.metric}`,
      });
    }
    marked.push(thick);
  });
  const stair = chart.best && !hidden.includes(STAIR) ? [stairOf(chart.best, theme)] : [];
  return [...plain, ...stair, ...marked];
}

function stairOf(curve: Curve, theme: Theme): Line {
  return {
    key: "best",
    label: "best so far",
    curve,
    colour: theme.best,
    width: 1.3,
    opacity: 0.8,
    dashed: true,
    stepped: true,
    silent: true,
  };
}

/** Trials with a curve on the screen: one of nothing but NaN has none. */
export function drawnOf({ update, curves }: ChartState): number[] {
  return update.shown.filter((trial) => curves.get(trial)?.isVisible);
}

/** The points of all curves as CSV, as they were reported. */
export function csvOf({ update, curves }: ChartState): string {
  const rows = [["trial", "state", update.x_title, update.metric]];
  update.shown.forEach((trial, index) => {
    const curve = curves.get(trial);
    for (let at = 0; curve && at < curve.length; at += 1) {
      rows.push([String(trial), update.states[index], String(curve.x[at]), String(curve.y[at])]);
    }
  });
  return rows.map((row) => `${row.map(quoted).join(",")}\r\n`).join("");
}

/** A cell of CSV; one that a spreadsheet would compute is text. */
function quoted(cell: string): string {
  const text = /^[=+\-@\t\r]/.test(cell) && !Number.isFinite(Number(cell)) ? `'${cell}` : cell;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
