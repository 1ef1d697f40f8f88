// How much of the plane a chart shows.
import type { Drawing } from "./drawing";

export type Range = [number, number];

export interface Extent {
  x: Range;
  y: Range;
}

/** Everything that is drawn, with a little air above and below. */
export function extentOf(drawing: Drawing): Extent {
  const x: Range = [Infinity, -Infinity];
  const y: Range = [Infinity, -Infinity];
  const lowest = drawing.logarithmic ? Number.MIN_VALUE : -Infinity;
  const include = (range: Range, values: Float64Array, length: number, least: number) => {
    for (let index = 0; index < length; index += 1) {
      const value = values[index];
      if (!Number.isFinite(value) || value < least) continue;
      if (value < range[0]) range[0] = value;
      if (value > range[1]) range[1] = value;
    }
  };
  for (const { curve } of drawing.lines) {
    include(x, curve.x, curve.length, drawing.xLogarithmic ? Number.MIN_VALUE : -Infinity);
    include(y, curve.y, curve.length, lowest);
  }
  const leastX = drawing.xLogarithmic ? Number.MIN_VALUE : -Infinity;
  for (const dot of drawing.dots ?? []) {
    include(x, Float64Array.of(dot.x), 1, leastX);
    include(y, Float64Array.of(dot.y), 1, lowest);
  }
  for (const { on, value } of drawing.limits ?? []) {
    include(on === "x" ? x : y, Float64Array.of(value), 1, on === "x" ? leastX : lowest);
  }
  for (const { from, to } of drawing.spans?.bars ?? []) include(x, Float64Array.of(from, to), 2, -Infinity);
  if (drawing.band) {
    include(x, drawing.band.x, drawing.band.x.length, -Infinity);
    include(y, drawing.band.low, drawing.band.low.length, lowest);
    include(y, drawing.band.high, drawing.band.high.length, lowest);
  }
  const shown: Range = drawing.yRange && drawing.yRange[0] >= lowest ? [...drawing.yRange] : y;
  if (drawing.target !== null && drawing.target >= lowest) include(shown, Float64Array.of(drawing.target), 1, lowest);
  const aroundAll = drawing.logarithmic ? airedLogarithmic(shown) : aired(shown);
  return { x: xExtent(drawing, x), y: limited(aroundAll, drawing.yLimits, lowest) };
}

/** Lines begin at the edge; dots keep away from it. */
function xExtent(drawing: Drawing, x: Range): Range {
  if (drawing.xRange) return drawing.xRange;
  if (drawing.xLogarithmic) return airedLogarithmic(x);
  return drawing.dots?.length ? aired(x) : widened(x);
}

/** A range with the ends that a person chose, in either order; what a logarithmic axis cannot show is left out. */
function limited([low, high]: Range, limits: Drawing["yLimits"], least: number): Range {
  const [from, to] = (limits ?? []).map((limit) => (limit !== null && limit >= least ? limit : null));
  if (from != null && to != null && from !== to) return [Math.min(from, to), Math.max(from, to)];
  const isLogarithmic = least > 0;
  if (from != null) return [from, endAbove(from, [low, high], isLogarithmic)];
  if (to != null) return [endBelow(to, [low, high], isLogarithmic), to];
  return [low, high];
}

/** The upper end above a chosen lower one; beyond all curves there is as much room as these take. */
function endAbove(from: number, [low, high]: Range, isLogarithmic: boolean): number {
  if (from < high) return high;
  return isLogarithmic ? (from * high) / low : from + high - low;
}

/** The lower end below a chosen upper one, in the same way. */
function endBelow(to: number, [low, high]: Range, isLogarithmic: boolean): number {
  if (to > low) return low;
  return isLogarithmic ? (to * low) / high : to - (high - low);
}

function widened([low, high]: Range): Range {
  if (low > high) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function aired(range: Range): Range {
  const [low, high] = range[0] === range[1] ? aroundOne(range[0]) : widened(range);
  const air = (high - low) * 0.04;
  // A curve of rates or losses does not go below nothing, and an axis that does so misleads.
  return [low >= 0 && low - air < 0 ? 0 : low - air, high + air];
}

function aroundOne(value: number): Range {
  const half = Math.abs(value) * 0.05 || 0.5;
  return [value - half, value + half];
}

function airedLogarithmic([low, high]: Range): Range {
  if (low > high) return [0.1, 1];
  const factor = Math.max(1.1, (high / low) ** 0.04);
  // The first tick stands at the lower end, whatever it is: so it is a short number.
  const decade = 10 ** Math.floor(Math.log10(low));
  return [Math.max(1, Math.floor(low / decade)) * decade, high * factor];
}
