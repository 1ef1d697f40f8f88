// From values to the text in a field and back. What a text means is left to the kernel.
import { formatNumber } from "../format";
import type { Field, Json } from "./protocol";

/** A value as it stands in a field to be edited: every digit, unlike in what is only shown. */
export function writtenOf(value: Json | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.map(writtenOf).join(", ");
  return JSON.stringify(value);
}

/** What was typed as a value of that field; null where nothing was, which means the default. */
export function valueOf(text: string, kind: Field["kind"]): Json {
  const trimmed = text.trim();
  if (!trimmed) return null;
  switch (kind) {
    case "text":
      return text;
    case "names":
      return trimmed.split(",").map((one) => one.trim()).filter(Boolean);
    case "number":
    case "whole":
    case "duration":
    case "size":
      return numberOr(trimmed);
    case "switch":
    case "choice":
    case "mapping":
      return parsed(trimmed);
  }
}

/** A number as a person writes it, or else the text, of which the kernel says what is wrong. */
export function numberOr(text: string): Json {
  const trimmed = text.trim();
  const number = /^[-+]?(\d|\.\d)[\d.eE+-]*$/.test(trimmed) ? Number(trimmed) : NaN;
  return Number.isFinite(number) ? number : trimmed;
}

/** A list as it is typed: JSON, or values with commas between them. */
export function listOf(text: string): Json[] {
  const trimmed = text.trim();
  if (trimmed.startsWith("[")) {
    const whole = parsed(trimmed);
    if (Array.isArray(whole)) return whole;
  }
  return trimmed ? trimmed.split(",").map((one) => parsed(one)) : [];
}

/** A list as it can be typed again: values that are lists themselves need JSON. */
export function listText(values: Json[]): string {
  const isPlain = values.every((one) => typeof one !== "string" ? typeof one !== "object" || one === null : parsed(one) === one && !one.includes(","));
  return isPlain ? values.map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join(", ") : JSON.stringify(values);
}

/** A value of any kind as it is typed: JSON where it is JSON, and else the text itself. */
export function parsed(text: string): Json {
  const trimmed = text.trim();
  const number = numberOr(trimmed);
  if (typeof number === "number") return number;
  try {
    return JSON.parse(trimmed) as Json;
  } catch {
    return trimmed;
  }
}

/** A value of any kind as it can be typed again. */
export function textOf(value: Json | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" && parsed(value) === value ? value : JSON.stringify(value);
}

/** What a field allows, in a few words; empty where its type says nothing more. */
export function boundsOf(field: Field): string {
  const { low, high } = field;
  const isWhole = field.kind === "whole";
  const from = low == null ? "" : !field.low_open ? `at least ${formatNumber(low)}` : isWhole ? `at least ${formatNumber(low + 1)}` : `above ${formatNumber(low)}`;
  const to = high == null ? "" : `${field.high_open ? "below" : "at most"} ${formatNumber(high)}`;
  if (low != null && high != null && !field.low_open && !field.high_open) return `${formatNumber(low)} to ${formatNumber(high)}`;
  return [from, to].filter(Boolean).join(", ");
}
