// What the chart of a run draws: the curves of its trials in the order in which they cover each other.
import { Curve } from "./curve";
import { formatCount } from "./format";
import type { Drawing, Line } from "./drawing";
import type { ChartState, ViewState } from "./state";
import type { ChartUpdate } from "./types";
import type { Theme } from "./theme";

/** Keys of the legend besides the states of trials. */
export const BEST = "best";
export const STAIR = "best so far";
export const BAND = "spread";
/** Complete trials that break a limit, or missed their target. */
export const NO_RESULT = "no result";

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

/** The same chart by how far each value is from the best one, on a logarithmic axis: small gains stay visible. */
export function distanceFromBest(drawing: Drawing, best: number, name: string): Drawing {
  const lines = drawing.lines.map((line) => {
    const { x, y, length } = line.curve;
    // A logarithmic axis has no place for the best value itself.
    const far = y.subarray(0, length).map((value) => (value === best ? NaN : Math.abs(value - best)));
    return { ...line, curve: Curve.of(x.subarray(0, length), far) };
  });
  const logarithmic = true;
  return { ...drawing, lines, band: null, target: null, yName: name, yRange: null, yLimits: undefined, logarithmic };
}

/** Share of the way of the best value that its second half may still make in a chart that is flat. */
const FLAT = 0.05;
const MIN_POINTS = 8;

/** Whether nearly all that the best value gained lies in the first half of the axis, so that the rest looks flat. */
export function isFlat({ best, curves }: ChartState): boolean {
  if (!best || best.length < 2) return false;
  const longest = [...curves.values()].reduce((one, other) => (other.length > one.length ? other : one), best);
  if (longest.length < MIN_POINTS) return false;
  const [first, last] = [best.y[0], best.y[best.length - 1]];
  const middle = (longest.x[0] + longest.x[longest.length - 1]) / 2;
  const half = best.y[Math.max(best.before(middle), 0)];
  return Math.abs(last - first) > 0 && Math.abs(last - half) < FLAT * Math.abs(last - first);
}

/** How many workers the trials have, where they have not equally many: what colours their lines. */
export function workersOf({ num_workers }: ChartUpdate): number[] {
  const known = (num_workers ?? []).filter((num) => num !== null);
  return [...new Set(known)].sort((one, other) => one - other);
}

/** The key of the legend for lines of so many workers. */
export function keyOfWorkers(num: number): string {
  return formatCount(num, "worker");
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
  const joints = new Map((update.joints ?? []).map((joint) => [joint.trial, joint]));
  const path = new Set(update.path);
  const workers = workersOf(update);
  update.shown.forEach((trial, index) => {
    const raw = joined(curves.get(trial) ?? new Curve(), joints.get(trial));
    const state = update.states[index];
    const isNoResult = update.no_result?.includes(trial) ?? false;
    const isOnPath = path.has(trial) && !hidden.includes(BEST);
    const isBest = isOnPath || (trial === update.best_trial && !hidden.includes(BEST));
    const num = update.num_workers?.[index] ?? null;
    const usual = num === null ? theme.states[state] : theme.categories[workers.indexOf(num) % theme.categories.length];
    const line: Line = {
      key: String(trial),
      label: `Trial ${trial}, ${state}${isNoResult ? ", no result: it breaks a limit or missed its target" : ""}`,
      curve: raw.smoothed(smoothing),
      colour: isNoResult ? theme.states.stopped : (usual ?? theme.muted),
      width: crowded ? 1 : 1.4,
      opacity: state === "running" ? 0.95 : crowded ? 0.5 : 0.7,
      // A trial that still runs is distinguished without its colour.
      dotted: state === "running" || isNoResult,
    };
    const place = chosen.indexOf(trial);
    if (place < 0 && !isBest) {
      if (!hidden.includes(isNoResult ? NO_RESULT : state) && !(num !== null && hidden.includes(keyOfWorkers(num))))
        plain.push(line);
      return;
    }
    const colour = isBest ? theme.best : theme.categories[place % theme.categories.length];
    const thick: Line = {
      ...line,
      colour,
      width: isBest ? 3 : 2.2,
      opacity: 1,
      dotted: false,
      name: isOnPath && trial !== update.best_trial && place < 0 ? undefined : `#${trial}`,
      label:
        trial === update.best_trial
          ? `${line.label}, best`
          : isOnPath
            ? `${line.label}, leads to the best`
            : line.label,
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

/** A curve that begins where that of another trial ended, which it continues. */
function joined(curve: Curve, joint: { x: number; y: number } | undefined): Curve {
  if (!joint || !curve.length) return curve;
  const whole = Curve.of(Float64Array.of(joint.x), Float64Array.of(joint.y));
  whole.splice(1, curve.x.subarray(0, curve.length), curve.y.subarray(0, curve.length));
  return whole;
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
