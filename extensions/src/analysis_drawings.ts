// What the figures of the analysis draw: the same trials, colours and selection in each of them.
import type { AnalysisState, Axis, Objective } from "./analysis_data";
import { rangeIn, type BrushedAxis } from "./brush";
import { Curve } from "./curve";
import { NO_DRAWING, type Dot, type Drawing, type Line, type Tick, type Upright } from "./drawing";
import { formatNumber } from "./format";
import { css, evenly, goodness } from "./ramps";
import type { Theme } from "./theme";

/** How trials are shown, the same in all figures. */
export interface Looks {
  theme: Theme;
  /** Trials that match the filter; null for all. */
  matching: Set<number> | null;
  /** Trials that a person chose. */
  chosen: number[];
  /** The parameter that colours the trials; null for none. */
  colour: Axis | null;
  logarithmic: boolean;
  filter: string;
}

/** Where the parameter of a trial is not set, below the axis. */
const ABSENT = -0.12;
const MARGIN = 0.05;
const CROWD = 300;
const NUM_TICKS = 4;

export function parallelOf(data: AnalysisState, looks: Looks): Drawing {
  const { theme, matching } = looks;
  const axes = brushedAxes(data);
  const places = placesOf(data);
  const x = Float64Array.from(axes, (_, index) => index);
  const rows = [...data.trials.keys()];
  // The best lines cover the others, and what does not match is below all.
  const order = [...rows].sort((one, other) => (data.ranks[other] || 2) - (data.ranks[one] || 2));
  const faint: Line[] = [];
  const lines: Line[] = [];
  const marked: Line[] = [];
  for (const row of order) {
    const trial = data.trials[row];
    const isIn = matching === null || matching.has(trial);
    const isBest = trial === data.bestTrial;
    const isChosen = looks.chosen.includes(trial);
    const y = Float64Array.from(places, (column) => (Number.isNaN(column[row]) ? ABSENT : column[row]));
    if (data.standings[row] === "pruned") y[y.length - 1] = NaN;
    const line: Line = {
      key: String(trial),
      label: labelOf(data, row),
      curve: Curve.of(x, y),
      colour: isIn ? colourOfLine(data, row, looks) : theme.grid,
      width: isBest ? 3 : isChosen ? 2.6 : isIn ? 1.4 : 0.9,
      opacity: isIn ? (rows.length > CROWD ? 0.6 : 0.85) : 0.8,
    };
    if (isIn && (isBest || isChosen)) {
      const colour = isBest ? theme.best : theme.ink;
      marked.push({ ...line, colour, opacity: 1, dashed: isChosen && !isBest });
    } else (isIn ? lines : faint).push(line);
  }
  const uprights = axes.map((axis, index): Upright => {
    const isLast = index === axes.length - 1;
    const ticks = isLast ? valueTicks(data.objectives[0]) : data.axes[index].ticks;
    const absent: Tick[] = !isLast && data.axes[index].is_conditional ? [[ABSENT, "not set"]] : [];
    return { title: axis.name, ticks: [...ticks, ...absent], brush: rangeIn(looks.filter, axis) };
  });
  const hasAbsent = data.axes.some((axis) => axis.is_conditional);
  return {
    ...NO_DRAWING,
    lines: [...faint, ...lines, ...marked],
    uprights,
    xRange: [-0.6, axes.length - 0.55],
    yRange: [hasAbsent ? ABSENT - 0.05 : -0.03, 1.02],
    yLimits: [hasAbsent ? ABSENT - 0.05 : -0.03, 1.02],
  };
}

/** The axes as a brush sees them: the parameters, then the objective. */
export function brushedAxes(data: AnalysisState): BrushedAxis[] {
  const objective = data.objectives[0];
  const [low, high] = endsOf(objective.values);
  const parameters = data.axes.map((axis) => ({
    name: axis.name,
    is_log: axis.scale === "log",
    low: axis.low,
    high: axis.high,
    is_whole: axis.is_whole,
    choices: axis.scale === "category" ? axis.ticks.map(([, label]) => label) : null,
  }));
  return [...parameters, { name: objective.metric, is_log: false, low, high, is_whole: false, choices: null }];
}

function placesOf(data: AnalysisState): Float64Array[] {
  const { values } = data.objectives[0];
  const [low, high] = endsOf(values);
  const last = Float64Array.from(values, (value) => (high > low ? (value - low) / (high - low) : 0.5));
  return [...data.axes.map((axis) => axis.places), last];
}

function colourOfLine(data: AnalysisState, row: number, looks: Looks): string {
  if (looks.colour) return colourAt(looks.colour, row, looks.theme);
  const rank = data.ranks[row];
  return Number.isNaN(rank) ? looks.theme.faint : css(goodness(1 - rank, looks.theme));
}

function colourAt(axis: Axis, row: number, theme: Theme): string {
  const place = axis.places[row];
  return Number.isNaN(place) ? theme.faint : css(evenly(place));
}

export function sliceOf(data: AnalysisState, axis: Axis, looks: Looks): Drawing {
  const { values, y_range, metric } = data.objectives[0];
  return {
    ...NO_DRAWING,
    dots: dotsOf(data, axis.places, values, looks),
    xTitle: axis.name,
    yName: metric,
    xTicks: axis.ticks,
    xRange: [-MARGIN, 1 + MARGIN],
    yRange: y_range ?? null,
    logarithmic: looks.logarithmic,
  };
}

/** The objective over two parameters: fields of colour below the trials, or trials coloured by their rank. */
export function pairOf(data: AnalysisState, index: number, kind: "contour" | "rank", looks: Looks): Drawing {
  const grid = data.grids[index];
  const [x, y] = [data.axes[grid.x], data.axes[grid.y]];
  const isContour = kind === "contour" && grid.size > 0;
  const colours = (row: number) =>
    isContour || Number.isNaN(data.ranks[row]) ? looks.theme.ink : css(goodness(1 - data.ranks[row], looks.theme));
  const dots = dotsOf(data, x.places, y.places, looks, colours).map((dot) =>
    isContour && dot.shape === "disc" ? { ...dot, size: Math.min(dot.size, 2.5) } : dot,
  );
  const heat = isContour ? { size: grid.size, pixels: pixelsOf(data, grid.values, grid.size, looks.theme) } : undefined;
  return {
    ...NO_DRAWING,
    dots,
    heat,
    xTitle: x.name,
    yName: y.name,
    xTicks: x.ticks,
    yTicks: y.ticks,
    xRange: [-MARGIN, 1 + MARGIN],
    yRange: [-MARGIN, 1 + MARGIN],
    yLimits: [-MARGIN, 1 + MARGIN],
  };
}

function pixelsOf(data: AnalysisState, values: Float64Array, size: number, theme: Theme): Uint8ClampedArray {
  const [low, high] = endsOf(values);
  const isMore = data.objectives[0].goal === "maximize";
  const pixels = new Uint8ClampedArray(4 * size * size);
  values.forEach((value, at) => {
    const share = high > low ? (value - low) / (high - low) : 0.5;
    const row = size - 1 - Math.floor(at / size);
    pixels.set([...goodness(isMore ? share : 1 - share, theme), 255], 4 * (row * size + (at % size)));
  });
  return pixels;
}

/** Which share of the trials reaches a value: a steep part holds many trials. */
export function distributionOf(data: AnalysisState, looks: Looks): Drawing {
  const { values, metric, title } = data.objectives[0];
  const rows = [...data.trials.keys()].filter((row) => !Number.isNaN(data.shares[row]));
  rows.sort((one, other) => values[one] - values[other]);
  const x = Float64Array.from(rows, (row) => values[row]);
  const y = Float64Array.from(rows, (row) => data.shares[row]);
  const { theme } = looks;
  const stair: Line = {
    key: "",
    label: "",
    curve: Curve.of(x, y),
    colour: theme.states.complete ?? theme.accent,
    width: 1.6,
    opacity: 1,
    stepped: true,
    silent: true,
  };
  const dots = dotsOf(data, values, data.shares, looks).filter(({ y: share }) => !Number.isNaN(share));
  return {
    ...NO_DRAWING,
    lines: [stair],
    dots: dots.map((dot) => (dot.shape === "disc" ? { ...dot, size: Math.min(dot.size, 3) } : dot)),
    xTitle: title,
    yName: `share of trials by ${metric}`,
    yKind: "percent",
    yRange: [0, 1],
    xLogarithmic: looks.logarithmic,
  };
}

/** The value of each trial in their order, and the best so far. */
export function courseOf(data: AnalysisState, looks: Looks): Drawing {
  const { values, metric, y_range } = data.objectives[0];
  const { theme } = looks;
  const rows = [...data.trials.keys()].filter((row) => !Number.isNaN(data.best[row]));
  const stair: Line = {
    key: "best",
    label: "best so far",
    curve: Curve.of(
      Float64Array.from(rows, (row) => data.trials[row]),
      Float64Array.from(rows, (row) => data.best[row]),
    ),
    colour: theme.best,
    width: 1.6,
    opacity: 0.9,
    stepped: true,
    silent: true,
  };
  return {
    ...NO_DRAWING,
    lines: [stair],
    dots: dotsOf(data, data.trials, values, looks),
    xTitle: "Trial",
    yName: metric,
    yRange: y_range ?? null,
    xKind: "whole",
    logarithmic: looks.logarithmic,
  };
}

/** Trials by two objectives: those of the front with their numbers, on the border of what can be reached. */
export function frontOf(data: AnalysisState, first: number, second: number, looks: Looks): Drawing {
  const { theme } = looks;
  const [x, y] = [data.objectives[first], data.objectives[second]];
  const isFront = (row: number) => data.front.has(data.trials[row]);
  const all = dotsOf(data, x.values, y.values, looks);
  const dots = all.map((dot): Dot => {
    if (!data.front.has(Number(dot.key))) return dot;
    return {
      ...dot,
      colour: theme.best,
      size: 5,
      shape: "disc",
      opacity: dot.opacity < 0.5 ? 0.3 : 1,
      name: `#${dot.key}`,
    };
  });
  const base = baseOf(x, y, theme);
  const rows = [...data.trials.keys()].filter(isFront).sort((one, other) => x.values[one] - x.values[other]);
  return {
    ...NO_DRAWING,
    lines: data.objectives.length === 2 && rows.length > 1 ? [borderOf(rows, x, y, theme)] : [],
    dots: [...dots.filter(({ name }) => !name), ...base, ...dots.filter(({ name }) => name)],
    limits: [
      ...x.limits.map(({ side, value }) => ({ on: "x" as const, value, label: `${side} ${formatNumber(value)}` })),
      ...y.limits.map(({ side, value }) => ({ on: "y" as const, value, label: `${side} ${formatNumber(value)}` })),
    ],
    xTitle: x.title,
    yName: y.title,
    logarithmic: looks.logarithmic,
    xLogarithmic: looks.logarithmic,
  };
}

/** A stair, because nothing between two trials of the front has been reached. */
function borderOf(rows: number[], x: Objective, y: Objective, theme: Theme): Line {
  const points: [number, number][] = [];
  rows.forEach((row, at) => {
    const here: [number, number] = [x.values[row], y.values[row]];
    if (at) {
      const [beforeX, beforeY] = points[points.length - 1];
      points.push(x.goal === "minimize" ? [here[0], beforeY] : [beforeX, here[1]]);
    }
    points.push(here);
  });
  return {
    key: "",
    label: "",
    curve: Curve.of(
      Float64Array.from(points, ([px]) => px),
      Float64Array.from(points, ([, py]) => py),
    ),
    colour: theme.best,
    width: 1.2,
    opacity: 0.6,
    silent: true,
  };
}

function baseOf(x: Objective, y: Objective, theme: Theme): Dot[] {
  if (x.base == null || y.base == null) return [];
  const label = `the base\n${x.metric} ${formatNumber(x.base)}\n${y.metric} ${formatNumber(y.base)}`;
  const dot: Dot = { key: "", label, x: x.base, y: y.base, colour: theme.ink, size: 6, opacity: 1, shape: "plus" };
  return [{ ...dot, name: "base" }];
}

/** One dot per trial that has both coordinates; the best and the chosen ones cover the others. */
function dotsOf(
  data: AnalysisState,
  x: Float64Array,
  y: Float64Array,
  looks: Looks,
  colourOf?: (row: number) => string,
): Dot[] {
  const { theme, matching, colour } = looks;
  const size = data.trials.length > CROWD ? 2.4 : 3.6;
  const plain: Dot[] = [];
  const marked: Dot[] = [];
  data.trials.forEach((trial, row) => {
    if (Number.isNaN(x[row]) || Number.isNaN(y[row])) return;
    const standing = data.standings[row];
    const isIn = matching === null || matching.has(trial);
    const isBest = trial === data.bestTrial;
    const isChosen = looks.chosen.includes(trial) || trial === data.chosen;
    const usual = standing === "complete" ? (theme.states.complete ?? theme.accent) : theme.states[stateOf(standing)];
    const dot: Dot = {
      key: String(trial),
      label: labelOf(data, row),
      x: x[row],
      y: y[row],
      colour: colourOf?.(row) ?? (colour ? colourAt(colour, row, theme) : (usual ?? theme.muted)),
      size,
      opacity: isIn ? 0.8 : 0.15,
      shape: standing === "complete" ? "disc" : standing === "pruned" ? "ring" : "cross",
    };
    if (isIn && isBest) marked.push({ ...dot, colour: theme.best, size: 5.5, opacity: 1 });
    else if (!isChosen) plain.push(dot);
    if (isIn && isChosen) {
      if (!isBest) marked.push({ ...dot, size: Math.max(size, 4), opacity: 1 });
      marked.push({ ...dot, colour: theme.ink, size: 7.5, opacity: 1, shape: "ring" });
    }
  });
  const faint = plain.filter(({ opacity }) => opacity < 0.5);
  return [...faint, ...plain.filter(({ opacity }) => opacity >= 0.5), ...marked];
}

function stateOf(standing: "no_result" | "pruned" | "complete"): string {
  return standing === "no_result" ? "stopped" : standing;
}

const WORDS = { complete: "", no_result: ", no result: it breaks a limit or missed its target", pruned: ", pruned" };

function labelOf(data: AnalysisState, row: number): string {
  const trial = data.trials[row];
  const best = trial === data.bestTrial ? ", best" : data.front.has(trial) ? ", on the front" : "";
  const choice = trial === data.chosen ? ", chosen by hand" : "";
  const values = data.objectives.map(({ metric, values: column }) => `${metric} ${formatNumber(column[row])}`);
  const params = data.axes.map((axis) => `${axis.name} ${writtenAt(axis, row)}`);
  return [`Trial ${trial}${best}${choice}${WORDS[data.standings[row]]}`, ...values, ...params].join("\n");
}

function writtenAt(axis: Axis, row: number): string {
  const place = axis.places[row];
  if (Number.isNaN(place)) return "not set";
  if (axis.low === null || axis.high === null) {
    const nearest = axis.ticks.reduce((one, other) =>
      Math.abs(other[0] - place) < Math.abs(one[0] - place) ? other : one,
    );
    return nearest[1];
  }
  const value =
    axis.scale === "log" ? axis.low ** (1 - place) * axis.high ** place : axis.low + place * (axis.high - axis.low);
  return formatNumber(axis.is_whole ? Math.round(value) : Number(value.toPrecision(5)));
}

function valueTicks({ values }: Objective): Tick[] {
  const [low, high] = endsOf(values);
  if (!(high > low)) return [[0.5, formatNumber(low)]];
  const rough = (high - low) / NUM_TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((size) => size >= rough * 0.999) ?? rough;
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, at) => {
    const value = Number(((first + at) * step).toPrecision(12));
    return [(value - low) / (high - low), formatNumber(value)];
  });
}

function endsOf(values: Float64Array): [low: number, high: number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? [0, 1] : [low, high];
}
