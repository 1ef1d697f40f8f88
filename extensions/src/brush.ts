// Selecting values on an axis of the parallel coordinates: what is selected becomes comparisons in the filter of trials,
// which the table, the other figures and a person share.
import { formatNumber } from "./format";

/** An axis of the parallel coordinates: places from 0 to 1. */
export interface BrushedAxis {
  name: string;
  is_log: boolean;
  low: number | null;
  high: number | null;
  is_whole: boolean;
  /** On an axis of categories, from 0 to 1. */
  choices: string[] | null;
}

export type Range = [low: number, high: number];

/** What a filter cannot name, because spaces and signs separate its parts. */
const UNNAMEABLE = /[\s<>=!]|^$/;

export function isBrushable({ name, low, high, choices }: BrushedAxis): boolean {
  if (UNNAMEABLE.test(name)) return false;
  return choices ? !choices.some((one) => UNNAMEABLE.test(one)) : low !== null && high !== null && low < high;
}

/** The filter in which only that range of an axis remains; without a range all of it does. */
export function withRange(filter: string, axis: BrushedAxis, range: Range | null): string {
  const others = filter.replace(comparisonsOf(axis.name), " ").split(/\s+/).filter(Boolean);
  return [...others, ...(range ? comparisonsFor(axis, range) : [])].join(" ");
}

/** The range of an axis that a filter leaves; null where it leaves all. */
export function rangeIn(filter: string, axis: BrushedAxis): Range | null {
  const found = [...filter.matchAll(comparisonsOf(axis.name))].map(([, sign, value]) => ({ sign, value }));
  if (!found.length) return null;
  if (axis.choices) {
    const gone = new Set(found.filter(({ sign }) => sign === "!=").map(({ value }) => value));
    const kept = axis.choices.map((one, at) => (gone.has(one) ? -1 : at)).filter((at) => at >= 0);
    if (!gone.size || !kept.length) return null;
    const [last, around] = [Math.max(axis.choices.length - 1, 1), 0.03];
    return [Math.min(...kept) / last - around, Math.max(...kept) / last + around];
  }
  const scale = scaleOf(axis);
  if (!scale) return null;
  const range: Range = [0, 1];
  for (const { sign, value } of found) {
    if (sign.startsWith(">")) range[0] = placeOf(Number(value), scale);
    else if (sign.startsWith("<")) range[1] = placeOf(Number(value), scale);
  }
  return range[0] <= 0 && range[1] >= 1 ? null : range;
}

function comparisonsFor(axis: BrushedAxis, [low, high]: Range): string[] {
  const { name, choices } = axis;
  if (choices) {
    const last = Math.max(choices.length - 1, 1);
    const isKept = (at: number) => at / last >= low && at / last <= high;
    // A range between two categories selects nothing, and is taken for none.
    if (!choices.some((_, at) => isKept(at))) return [];
    return choices.filter((_, at) => !isKept(at)).map((one) => `${name} != ${one}`);
  }
  const scale = scaleOf(axis);
  if (!scale) return [];
  return [
    ...(low > 0 ? [`${name} >= ${written(valueAt(low, scale), axis.is_whole, Math.ceil)}`] : []),
    ...(high < 1 ? [`${name} <= ${written(valueAt(high, scale), axis.is_whole, Math.floor)}`] : []),
  ];
}

function written(value: number, isWhole: boolean, round: (value: number) => number): string {
  return isWhole ? String(round(value)) : formatNumber(value);
}

/** The numbers of an axis; null if it has categories. */
interface Scale {
  is_log: boolean;
  low: number;
  high: number;
}

function scaleOf({ is_log, low, high }: BrushedAxis): Scale | null {
  return low === null || high === null ? null : { is_log, low, high };
}

function valueAt(place: number, { is_log, low, high }: Scale): number {
  return is_log ? low ** (1 - place) * high ** place : low + place * (high - low);
}

function placeOf(value: number, { is_log, low, high }: Scale): number {
  const [at, from, to] = is_log ? [value, low, high].map(Math.log) : [value, low, high];
  return (at - from) / (to - from);
}

function comparisonsOf(name: string): RegExp {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`(?<=^|\\s)${escaped}\\s*(<=|>=|!=|==|<|>|=)\\s*([^\\s<>=!]+)`, "g");
}
