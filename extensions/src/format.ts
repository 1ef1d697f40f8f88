// How numbers, times and values are written; the same everywhere.
import { toNumber } from "./frames";

/** A measured number: four figures, no longer than needed. */
export function formatNumber(value: number | string | null | undefined): string {
  if (value == null) return "–";
  const number = toNumber(value);
  if (number === null) return String(value);
  if (Number.isNaN(number)) return "NaN";
  if (!Number.isFinite(number)) return number > 0 ? "∞" : "−∞";
  if (Number.isInteger(number) && Math.abs(number) < 1e6) return sign(String(number));
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return sign(trimExponent(number.toExponential(2)));
  return sign(size >= 1000 ? number.toFixed(0) : trimZeros(number.toPrecision(4)));
}

/** A value of a configuration, whatever its kind. */
export function formatValue(value: unknown): string {
  if (value == null) return "–";
  if (typeof value === "number") return formatNumber(value);
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

export function formatDuration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (seconds < 10 && seconds > 0 && whole !== seconds) return `${trimZeros(seconds.toPrecision(2))} s`;
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return whole % 60 ? `${minutes} min ${two(whole % 60)} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${two(minutes % 60)} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function formatAge(unix_s: number, now_s = Date.now() / 1000): string {
  const age_s = Math.max(0, now_s - unix_s);
  if (age_s < 60) return "just now";
  if (age_s < 3600) return `${Math.floor(age_s / 60)} min ago`;
  if (age_s < 48 * 3600) return `${Math.floor(age_s / 3600)} h ago`;
  return `${Math.floor(age_s / 86400)} d ago`;
}

/** The time of day; with the date where it is another day. */
export function formatClock(unix_s: number, now = new Date()): string {
  const time = new Date(unix_s * 1000);
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  if (time.toDateString() === now.toDateString()) return clock;
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock}`;
}

export function formatBytes(bytes: number | null | undefined): string {
  if (bytes == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function formatPercent(part: number | null | undefined): string {
  return part == null ? "–" : `${Math.round(part * 100)} %`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number} ${number === 1 ? one : many}`;
}

/** What a person typed as a value: a number, a truth value, a list, or else the text itself. */
export function parseValue(text: string): unknown {
  const trimmed = text.trim();
  try {
    return JSON.parse(trimmed);
  } catch {
    return trimmed;
  }
}

/** Lines such as "training.epochs=5"; empty lines and those that begin with # count for nothing. */
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

function trimZeros(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function trimExponent(text: string): string {
  const [mantissa, exponent] = text.split("e");
  return `${trimZeros(mantissa)}e${exponent.replace("+", "")}`;
}

function sign(text: string): string {
  return text.replace(/^-/, "−");
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
