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

/** A single point, such as a trial. */
export interface Dot {
  key: string;
  label: string;
  x: number;
  y: number;
  colour: string;
  /** Its radius in CSS pixels. */
  size: number;
  opacity: number;
  shape: "disc" | "ring" | "cross" | "plus";
  /** What is written beside it. */
  name?: string;
}

/** Colours behind everything else, in equal fields over the whole plot. */
export interface Heat {
  size: number;
  /** Red, green, blue and opacity of each field, row by row from the highest y. */
  pixels: Uint8ClampedArray;
}

export type Tick = [place: number, label: string];

/** A vertical axis among several, as in parallel coordinates; places are from 0 to 1. */
export interface Upright {
  title: string;
  ticks: Tick[];
  /** What a person selected on it. */
  brush: [low: number, high: number] | null;
}

/** A value that may not be passed. */
export interface Limit {
  on: "x" | "y";
  value: number;
  label: string;
}

export interface Drawing {
  lines: Line[];
  dots?: Dot[];
  heat?: Heat;
  limits?: Limit[];
  /** In place of the two axes, at 0, 1, 2 and so on. */
  uprights?: Upright[];
  /** What is written at an axis instead of numbers. */
  xTicks?: Tick[];
  yTicks?: Tick[];
  xRange?: [number, number];
  xLogarithmic?: boolean;
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

export const NO_DRAWING: Drawing = {
  lines: [],
  band: null,
  target: null,
  xTitle: "",
  yName: "",
  yRange: null,
  xKind: "number",
  logarithmic: false,
};
