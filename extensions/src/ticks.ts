// Where the marks of the horizontal axis stand, and what is written at them: no word covers another.
import type uPlot from "uplot";
import { formatDuration, formatNumber } from "./format";
import type { Drawing, Tick } from "./drawing";

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

const ROW_PX = 14;
const MAX_NAME_PX = 110;

/** Marks with words of their own; those without room are left out. */
export function namedTicks(ticks: Tick[], on: "x" | "y"): Pick<uPlot.Axis, "splits" | "values" | "filter"> {
  const names = new Map(ticks);
  return {
    splits: () => ticks.map(([place]) => place),
    // Each word needs a line on an upright axis, and its width on the other.
    filter: (plot, splits) => {
      let end = -Infinity;
      return splits.map((split) => {
        const at = on === "x" ? plot.valToPos(split, "x") : -plot.valToPos(split, "y");
        const half = on === "x" ? widthOf(cut(names.get(split) ?? "")) / 2 : ROW_PX / 2;
        if (at - half < end) return null;
        end = at + half + (on === "x" ? GAP_PX / 2 : 0);
        return split;
      });
    },
    values: (_, splits) => splits.map((split) => (split == null ? "" : cut(names.get(split) ?? ""))),
  };
}

function cut(name: string): string {
  let text = name;
  while (text.length > 2 && widthOf(text) > MAX_NAME_PX) text = `${text.replace(/…$/, "").slice(0, -1)}…`;
  return text;
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
