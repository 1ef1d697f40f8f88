// The search space as rows to be shown and edited, and the scale that sliders and histograms share.
import type { Json, Mapping } from "./message_types";
import type { FormField, FormState } from "../types";

export type Kind = "float" | "int" | "choices" | "fixed";

export interface SearchRow {
  name: string;
  kind: Kind;
  /** As written: what was typed may be no number. */
  low: Json;
  high: Json;
  step: Json;
  log: boolean;
  choices: Json[];
  value: Json;
  when: Mapping;
}

export function rowsOf({ document }: FormState): SearchRow[] {
  return isMapping(document.search)
    ? Object.entries(document.search).map(([name, written]) => rowOf(name, written))
    : [];
}

function rowOf(name: string, written: Json): SearchRow {
  const row: SearchRow = {
    name,
    kind: "fixed",
    low: null,
    high: null,
    step: null,
    log: false,
    choices: [],
    value: null,
    when: {},
  };
  if (!isMapping(written)) return { ...row, value: written };
  if (isMapping(written.when)) row.when = written.when;
  if ("choices" in written) {
    const { choices } = written;
    return { ...row, kind: "choices", choices: Array.isArray(choices) ? choices : [choices] };
  }
  if (!("low" in written || "high" in written)) return { ...row, value: written.value ?? null };
  const { low = null, high = null, step = null } = written;
  const isWhole = [low, high, step ?? 1].every(Number.isInteger);
  const kind = written.type === "float" || written.type === "int" ? written.type : isWhole ? "int" : "float";
  return { ...row, kind, low, high, step, log: written.log === true };
}

/** The parameter as it would be written with another kind, keeping what both have. */
export function withKind(row: SearchRow, kind: Kind): Json {
  const when: Mapping = Object.keys(row.when).length ? { when: row.when } : {};
  const numbers = [row.low, row.high, ...row.choices, row.value].filter(
    (one): one is number => typeof one === "number",
  );
  const low = numbers.length ? Math.min(...numbers) : 0;
  const high = numbers.length ? Math.max(...numbers) : 1;
  switch (kind) {
    case "fixed": {
      const value = row.choices[0] ?? (numbers.length ? numbers[0] : row.value);
      return "when" in when ? { value, ...when } : value;
    }
    case "choices": {
      const values = row.kind === "fixed" ? [row.value] : [row.low, row.high];
      return { choices: values.filter((one, at) => values.indexOf(one) === at), ...when };
    }
    case "int":
      return {
        type: "int",
        low: Math.floor(low),
        high: Math.max(Math.ceil(high), Math.floor(low) + 1),
        ...log(row),
        ...when,
      };
    case "float":
      return { type: "float", low, high: high > low ? high : wider(low), ...log(row), ...when };
  }
}

function log(row: SearchRow): Mapping {
  return row.log ? { log: true } : {};
}

function wider(low: number): number {
  return low === 0 ? 1 : low > 0 ? low * 10 : low / 10;
}

/** How a search of a field begins: around its value, within its bounds. */
export function initialSearch(field: FormField): Json {
  if (field.kind === "switch") return { choices: [true, false] };
  if (field.kind === "choice" || field.kind === "text") {
    const choices = field.choices?.filter((one) => one !== "auto") ?? [];
    return choices.length ? { choices } : { choices: [field.value ?? field.default] };
  }
  const given = typeof field.value === "number" ? field.value : field.default;
  if (field.kind === "whole") {
    const middle = typeof given === "number" ? given : Math.max(field.low ?? 1, 1);
    const low = Math.max(Math.floor(middle / 2), lowest(field, 1));
    return { type: "int", low, high: Math.min(Math.max(middle * 2, low + 1), field.high ?? Infinity) };
  }
  if (field.kind === "number") return initialNumberSearch(field, typeof given === "number" ? given : null);
  return { value: given };
}

function initialNumberSearch(field: FormField, given: number | null): Json {
  const { low, high } = field;
  if (low != null && high != null) {
    const margin = (high - low) / 10;
    return {
      type: "float",
      low: low + (field.low_open ? margin : 0),
      high: round(high - (field.high_open ? margin : 0)),
    };
  }
  if (given) return { type: "float", low: round(Math.abs(given) / 10), high: round(Math.abs(given) * 10), log: true };
  // Most rates and weights that a network has: nobody knows the size, and zero has no logarithm.
  return { type: "float", low: 1e-4, high: 0.1, log: true };
}

function lowest(field: FormField, step: number): number {
  return field.low == null ? -Infinity : field.low + (field.low_open ? step : 0);
}

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
