// What a chart of lines shows.
import type { Curve } from "./curve";

export interface Line {
  key: string;
  label: string;
  curve: Curve;
  colour: string;
  /** In CSS pixels. */
  width: number;
  opacity: number;
  dashed?: boolean;
  dotted?: boolean;
  stepped?: boolean;
  /** Which of the stripes are its own, where it lies on others: one of how many. */
  stripe?: [index: number, count: number];
  /** What is written at its end. */
  name?: string;
  /** Nothing happens when the mouse comes near. */
  silent?: boolean;
}

export interface Band {
  x: Float64Array;
  low: Float64Array;
  middle: Float64Array;
  high: Float64Array;
}

/** A stretch of the horizontal axis, drawn as a bar behind the lines. */
export interface Span {
  key: string;
  label: string;
  /** What is written on it where there is room. */
  name: string;
  from: number;
  to: number;
  /** Bars of different lanes do not cover each other; the first stands lowest. */
  lane: number;
  colour: string;
}

export interface Drawing {
  lines: Line[];
  spans?: { bars: Span[]; numLanes: number };
  band: Band | null;
  target: number | null;
  xTitle: string;
  /** Of the value that the mouse is at. */
  yName: string;
  yRange: [number, number] | null;
  /** Ends that a person chose; null for where the data ends. */
  yLimits?: [low: number | null, high: number | null];
  /** What x counts: seconds are written as durations, and between whole numbers there is nothing. */
  xKind: "seconds" | "whole" | "number";
  logarithmic: boolean;
  /** Parts from 0 to 1 are written in percent. */
  yKind?: "percent";
}
