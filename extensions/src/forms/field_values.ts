// From values to the text in a field and back. What a text means is left to the kernel.
import { formatNumber } from "../format";
import type { Json } from "./message_types";
import type { FormField } from "../types";

/** A value as it stands in a field to be edited: every digit, unlike in what is only shown. */
export function toText(value: Json | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.map(toText).join(", ");
  return JSON.stringify(value);
}

/** What was typed as a value of that field; null where nothing was, which means the default. */
export function parseFieldValue(text: string, kind: FormField["kind"]): Json {
  const trimmed = text.trim();
  if (!trimmed) return null;
  switch (kind) {
    case "text":
      return text;
    case "names":
      return trimmed
        .split(",")
        .map((one) => one.trim())
        .filter(Boolean);
    case "number":
    case "whole":
    case "duration":
    case "size":
      return parseNumber(trimmed);
    case "switch":
    case "choice":
    case "mapping":
      return parseValue(trimmed);
  }
}

/** A number as a person writes it, or else the text, of which the kernel says what is wrong. */
export function parseNumber(text: string): Json {
  const trimmed = text.trim();
  const number = /^[-+]?(\d|\.\d)[\d.eE+-]*$/.test(trimmed) ? Number(trimmed) : NaN;
  return Number.isFinite(number) ? number : trimmed;
}

/** A list as it is typed: JSON, or values with commas between them. */
export function parseList(text: string): Json[] {
  const trimmed = text.trim();
  if (trimmed.startsWith("[")) {
    const whole = parseValue(trimmed);
    if (Array.isArray(whole)) return whole;
  }
  return trimmed ? trimmed.split(",").map((one) => parseValue(one)) : [];
}

/** A list as it can be typed again: values that are lists themselves need JSON. */
export function formatList(values: Json[]): string {
  const isPlain = values.every((one) =>
    typeof one !== "string" ? typeof one !== "object" || one === null : parseValue(one) === one && !one.includes(","),
  );
  return isPlain
    ? values.map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join(", ")
    : JSON.stringify(values);
}

/** A value of any kind as it is typed: JSON where it is JSON, and else the text itself. */
export function parseValue(text: string): Json {
  const trimmed = text.trim();
  const number = parseNumber(trimmed);
  if (typeof number === "number") return number;
  try {
    return JSON.parse(trimmed) as Json;
  } catch {
    return trimmed;
  }
}

/** A value of any kind as it can be typed again. */
export function toJsonText(value: Json | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" && parseValue(value) === value ? value : JSON.stringify(value);
}

/** What a field allows, in a few words; empty where its type says nothing more. */
export function formatBounds(field: FormField): string {
  const { low, high } = field;
  const isWhole = field.kind === "whole";
  const from =
    low == null
      ? ""
      : !field.low_open
        ? `at least ${formatNumber(low)}`
        : isWhole
          ? `at least ${formatNumber(low + 1)}`
          : `above ${formatNumber(low)}`;
  const to = high == null ? "" : `${field.high_open ? "below" : "at most"} ${formatNumber(high)}`;
  if (low != null && high != null && !field.low_open && !field.high_open)
    return `${formatNumber(low)} to ${formatNumber(high)}`;
  return [from, to].filter(Boolean).join(", ");
}
