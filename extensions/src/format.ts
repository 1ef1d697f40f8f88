// How quantities are written, as `workbench/foundation/formatting.py` writes them; `tests/foundation/formatting.json` holds cases for both.
import { toNumber } from "./frames";

const MISSING = "–";
const SIZE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SHORT_UNITS: [unit: string, perSecond: number, limit: number][] = [
  ["µs", 1e6, 1000],
  ["ms", 1e3, 1000],
  ["s", 1, 60],
];

/** Whole numbers in full, others with four significant digits: `0.9812`, `12346`, `3e-4`. */
export function formatNumber(value: number | string | null | undefined): string {
  if (value == null) return MISSING;
  const number = toNumber(value);
  if (number === null) return String(value);
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "inf" : "-inf";
  const size = Math.abs(number);
  if (Number.isInteger(number) && size < 1e15) return String(number);
  if (size >= 1000 && size < 1e6) return String(Math.floor(number + 0.5));
  const rounded = significant(number, 4);
  if (Math.abs(rounded) >= 0.001 && Math.abs(rounded) < 1e6) return String(rounded);
  return rounded.toExponential().replace("e+", "e");
}

/** The value of a parameter as YAML takes it: `sgd`, `3e-4`, `true`, `[16, 32]`. */
export function formatValue(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number") return formatNumber(value);
  if (Array.isArray(value)) return `[${value.map(formatValue).join(", ")}]`;
  if (value !== null && typeof value === "object") {
    return `{${Object.entries(value)
      .map(([name, item]) => `${name}: ${formatValue(item)}`)
      .join(", ")}}`;
  }
  return String(value);
}

/** A cell of the table of trials, as `TrialColumn.write` in Python writes it. */
export function formatCell(
  cell: number | boolean | string | null | undefined,
  format: "value" | "rate" = "value",
): string {
  if (cell == null) return MISSING;
  const number = toNumber(cell); // NaN and infinities arrive as text
  if (number === null) return formatValue(cell);
  return format === "rate" ? formatRate(number) : formatNumber(number);
}

/** The two largest units, or three significant digits below a minute: `850 µs`, `4.5 s`, `2 h 7 min`. */
export function formatDuration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return MISSING;
  if (seconds <= 0) return "0 s";
  for (const [unit, perSecond, limit] of SHORT_UNITS) {
    const rounded = significant(seconds * perSecond, 3);
    if (rounded < limit) return `${rounded} ${unit}`;
  }
  const whole = Math.floor(seconds + 0.5);
  if (whole < 3600) return twoUnits(whole, "min", 60, "s");
  const minutes = Math.floor(seconds / 60 + 0.5);
  if (minutes < 48 * 60) return twoUnits(minutes, "h", 60, "min");
  return twoUnits(Math.floor(seconds / 3600 + 0.5), "d", 24, "h");
}

export function formatAge(age_s: number): string {
  if (age_s < 60) return "just now";
  if (age_s < 3600) return `${Math.floor(age_s / 60)} min ago`;
  if (age_s < 48 * 3600) return `${Math.floor(age_s / 3600)} h ago`;
  return `${Math.floor(age_s / 86400)} d ago`;
}

/** The local time of day, preceded by the date unless it is today. */
export function formatClock(unix_s: number, now = new Date()): string {
  const time = new Date(unix_s * 1000);
  const clock = `${twoDigits(time.getHours())}:${twoDigits(time.getMinutes())}:${twoDigits(time.getSeconds())}`;
  if (time.toDateString() === now.toDateString()) return clock;
  return `${time.getFullYear()}-${twoDigits(time.getMonth() + 1)}-${twoDigits(time.getDate())} ${clock}`;
}

/** A size with three significant digits in binary units: `512 B`, `3.4 GiB`. */
export function formatBytes(bytes: number | null | undefined): string {
  if (bytes == null) return MISSING;
  let size = bytes;
  for (const unit of SIZE_UNITS.slice(0, -1)) {
    const rounded = significant(size, 3);
    if (rounded < 1000) return `${rounded} ${unit}`;
    size /= 1024;
  }
  return `${significant(size, 3)} ${SIZE_UNITS.at(-1)}`;
}

/** How many there are: `5,120`, `1 trial`, `3 trials`. */
export function formatCount(count: number, noun = "", plural = `${noun}s`): string {
  const whole = Math.floor(count + 0.5);
  const written = whole.toLocaleString("en-US");
  return noun ? `${written} ${whole === 1 ? noun : plural}` : written;
}

/** A rate without its unit: whole from a hundred on, with three significant digits below. */
export function formatRate(per_s: number | null | undefined): string {
  if (per_s == null || !Number.isFinite(per_s)) return formatNumber(per_s);
  return Math.abs(per_s) >= 100 ? formatCount(per_s) : String(significant(per_s, 3));
}

/** A share of 1 in percent: `45%`, `4.5%`, `<0.1%`. */
export function formatPercent(share: number | null | undefined): string {
  if (share == null || !Number.isFinite(share)) return MISSING;
  if (share > 0 && share < 1e-3) return "<0.1%";
  const size = Math.abs(share);
  const tenths = Math.floor(size * 1000 + 0.5);
  const written = tenths < 100 && tenths % 10 ? tenths / 10 : Math.floor(size * 100 + 0.5);
  return `${share < 0 && tenths ? "-" : ""}${written}%`;
}

const SPLITS: Record<string, string> = {
  val: "validation",
  valid: "validation",
  validation: "validation",
  eval: "evaluation",
  test: "test",
  train: "training",
};

/** What a metric measures and of which split, in words: `val_mean_absolute_error`, `mean absolute error (validation)`. */
export function formatMetric(name: string): string {
  const [, split, measure] = /^([a-z]+)_(\w+)$/.exec(name) ?? [];
  return split in SPLITS ? `${measure.replaceAll("_", " ")} (${SPLITS[split]})` : name;
}

/** Reads typed text as a number, a truth value or a list; anything else is the text itself. */
export function parseValue(text: string): unknown {
  const trimmed = text.trim();
  try {
    return JSON.parse(trimmed);
  } catch {
    return trimmed;
  }
}

/** Reads lines such as "training.epochs=5"; empty lines and lines that begin with # are ignored. */
export function parseSettings(text: string): { settings: Record<string, unknown>; problem: string | null } {
  const settings: Record<string, unknown> = {};
  for (const line of text.split("\n").map((one) => one.trim())) {
    if (!line || line.startsWith("#")) continue;
    const at = line.indexOf("=");
    if (at < 1) return { settings, problem: `“${line}” is not NAME=VALUE` };
    settings[line.slice(0, at).trim()] = parseValue(line.slice(at + 1));
  }
  return { settings, problem: null };
}

function significant(value: number, digits: number): number {
  return Number(value.toPrecision(digits));
}

function twoUnits(count: number, unit: string, perUnit: number, restUnit: string): string {
  const rest = count % perUnit;
  const whole = formatCount(Math.floor(count / perUnit));
  return rest ? `${whole} ${unit} ${rest} ${restUnit}` : `${whole} ${unit}`;
}

function twoDigits(number: number): string {
  return String(number).padStart(2, "0");
}
