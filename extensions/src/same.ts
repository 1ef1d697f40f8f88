// The command and the Python that do the same as a filled-in form.
import type { Offer } from "./types";

export interface Same {
  command: string;
  python: string;
}

/** As a POSIX shell reads it. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

export function setting(name: string, value: unknown): string {
  return `--set ${quoted(`${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)}`;
}

/** What an offer says, with what was filled in; as the offer has it where nothing was. */
export function sameAs(offer: Offer, runId: string, filled: Record<string, unknown>): Same {
  const entries = Object.entries(filled);
  if (!entries.length) return offer;
  const run = `wb.attach(${inPython(runId)})`;
  switch (offer.kind) {
    case "set":
    case "extend":
      return {
        command: ["workbench", offer.kind, runId, ...options(entries)].join(" "),
        python: `${run}.${offer.kind}(${inArguments(entries)})`,
      };
    case "enqueue":
      return {
        command: ["workbench enqueue", runId, ...entries.map(([name, value]) => setting(name, value))].join(" "),
        python: `${run}.enqueue(${inPython(filled)})`,
      };
    case "export": {
      const { to, ...rest } = filled;
      const words = to === undefined ? [] : [inPython(String(to))];
      const more = Object.entries(rest);
      return {
        command: ["workbench export", runId, ...options(entries)].join(" "),
        python: `${run}.export(${[...words, ...(more.length ? [inArguments(more)] : [])].join(", ")})`,
      };
    }
    default:
      return offer;
  }
}

function options(entries: [string, unknown][]): string[] {
  return entries.map(([name, value]) => `--${name} ${quoted(typeof value === "string" ? value : JSON.stringify(value))}`);
}

function inArguments(entries: [string, unknown][]): string {
  return entries.map(([name, value]) => `${name}=${inPython(value)}`).join(", ");
}

function inPython(value: unknown): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(inPython).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${inPython(one)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}
