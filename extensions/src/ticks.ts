// Where the marks of the horizontal axis stand, and what is written at them: no word covers another.
import type uPlot from "uplot";
import { formatDuration, formatNumber } from "./format";
import type { Drawing } from "./drawing";

export const FONT = "11px system-ui, sans-serif";
const TIME_STEPS = [
  0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 864000,
];
const WHOLE_STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const MIN_SPACE_PX = 50;
const GAP_PX = 14;

export function ticksOf(kind: Drawing["xKind"]): Pick<uPlot.Axis, "incrs" | "values" | "space"> {
  const write = kind === "seconds" ? formatDuration : formatNumber;
  return {
    ...(kind === "seconds" ? { incrs: TIME_STEPS } : kind === "whole" ? { incrs: WHOLE_STEPS } : {}),
    values: (_, ticks) => ticks.map(write),
    space: (_, __, least, most) => {
      const longest = kind === "seconds" ? longestDuration(most) : [least, most].map(write);
      return Math.max(MIN_SPACE_PX, ...longest.map((text) => widthOf(text) + GAP_PX));
    },
  };
}

/** The longest words for durations up to one. */
function longestDuration(most_s: number): string[] {
  if (most_s < 60) return ["0.5 s", "55 s"];
  return most_s < 3600 ? ["55 min 30 s"] : ["47 h 30 min"];
}

let measuring: CanvasRenderingContext2D | null = null;

/** Of what is written at an axis, in CSS pixels. */
export function widthOf(text: string): number {
  measuring ??= document.createElement("canvas").getContext("2d");
  if (!measuring) return 0;
  measuring.font = FONT;
  return measuring.measureText(text).width;
}
