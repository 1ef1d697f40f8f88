// The scale that sliders and histograms of the search space share.
import type { Json, Mapping } from "./message_types";
import type { FormField } from "../types";

/** Where values lie between two ends, from 0 to 1. */
export interface Scale {
  low: number;
  high: number;
  log: boolean;
  isWhole: boolean;
}

/** A scale that shows a range with some room on both sides, as far as the field allows. */
export function scaleOf(
  low: number,
  high: number,
  isLog: boolean,
  isWhole: boolean,
  field: FormField | null = null,
): Scale {
  const scale = roomy(low, high, isLog, isWhole);
  const ends = {
    low: Math.max(scale.low, field?.low ?? -Infinity),
    high: Math.min(scale.high, field?.high ?? Infinity),
  };
  return {
    ...scale,
    low: Math.min(low, isLog && ends.low <= 0 ? scale.low : ends.low),
    high: Math.max(high, ends.high),
  };
}

function roomy(low: number, high: number, isLog: boolean, isWhole: boolean): Scale {
  if (isLog && low > 0 && high > 0) {
    const from = power(Math.floor(Math.log10(low) + 1e-9) - 1);
    const to = power(Math.ceil(Math.log10(high) - 1e-9) + 1);
    return { low: isWhole ? Math.max(1, from) : from, high: to, log: true, isWhole };
  }
  const width = high - low || Math.abs(low) || 1;
  const unit = power(Math.floor(Math.log10(width)));
  const from = round(Math.floor((low - width / 2) / unit) * unit);
  return {
    low: low >= 0 ? Math.max(0, from) : from,
    high: round(Math.ceil((high + width / 2) / unit) * unit),
    log: false,
    isWhole,
  };
}

export function partOf(scale: Scale, value: number): number {
  const { low, high } = scale;
  const part = scale.log
    ? (Math.log(Math.max(value, low)) - Math.log(low)) / (Math.log(high) - Math.log(low))
    : (value - low) / (high - low);
  return Math.min(1, Math.max(0, part));
}

/** The number at a place of the scale, as round as the scale is fine. */
export function valueAt(scale: Scale, part: number): number {
  const { low, high } = scale;
  if (part <= 0) return low;
  if (part >= 1) return high;
  const value = scale.log ? low * (high / low) ** part : low + (high - low) * part;
  if (scale.isWhole) return Math.round(value);
  return scale.log ? Number(value.toPrecision(2)) : round(Math.round(value / fineness(scale)) * fineness(scale));
}

/** The next number in a direction, as arrow keys go: one step, or ten. */
export function stepped(scale: Scale, value: number, by: number): number {
  let next: number;
  if (scale.log && !scale.isWhole) {
    if (Math.abs(by) >= 10) next = value * 10 ** Math.sign(by);
    else {
      // Down from 1.0e-3 is 9.9e-4: the digit that counts is that of the smaller number.
      const size = power(Math.floor(Math.log10(by < 0 ? value * (1 - 1e-9) : value * (1 + 1e-9))));
      next = value + by * size * 0.1;
    }
    next = Number(next.toPrecision(2));
  } else next = round(value + by * (scale.isWhole ? 1 : fineness(scale)));
  return Math.min(scale.high, Math.max(scale.low, next));
}

function fineness({ low, high }: Scale): number {
  return power(Math.floor(Math.log10((high - low) / 50)));
}

/** Ten to that power, to the last digit. */
function power(exponent: number): number {
  return Number(`1e${exponent}`);
}

/** Without the digits that arithmetic in halves leaves behind. */
function round(number: number): number {
  return Number(number.toPrecision(12));
}

export function isMapping(value: Json | undefined): value is Mapping {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
