// The command and the Python that do the same as an action, while a form is filled in. The server writes them in
// workbench/watch/same.py; tests/same.json holds both to the same letters.
import type { Action, Done } from "./types";

export type Same = Pick<Done, "command" | "python">;

/** What is done, to which run, and what it is asked with. */
export type Asked = Required<Action>;

const PLAIN = /^[A-Za-z][A-Za-z0-9_./-]*$/;
const NO_TEXT = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"]);
const SAFE_IN_SHELL = /^[\w@%+=:,./-]+$/;

export function sameAs(asked: Asked): Same {
  return { command: ["workbench", ...wordsOf(asked)].map(quoted).join(" "), python: pythonOf(asked) };
}

/** As a POSIX shell reads it. */
function quoted(text: string): string {
  return SAFE_IN_SHELL.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

function wordsOf({ kind, run, arguments: given }: Asked): string[] {
  const runId = run ?? "";
  switch (kind) {
    case "start": {
      const { path, settings, name, address } = given as unknown as StartArguments;
      const more = [...(name ? ["--name", name] : []), ...(address ? ["--address", address] : [])];
      return [takesJobs(address) ? "submit" : "sweep", path, ...assignments(settings ?? {}), ...more];
    }
    case "stop_trial":
      return ["stop", runId, ...options(given)];
    case "enqueue":
      return ["enqueue", runId, ...assignments(given["params"] as Record<string, unknown>)];
    case "save_report":
      return ["report", runId, ...options(given)];
    default:
      return [kind, runId, ...options(given)];
  }
}

interface StartArguments {
  path: string;
  settings?: Record<string, unknown>;
  name?: string;
  address?: string;
}

/** Whether runs are submitted to an address, rather than driven from here. */
function takesJobs(address: string | undefined): boolean {
  return /^https?:\/\//i.test(address ?? "");
}

function pythonOf({ kind, run: runId, arguments: given }: Asked): string {
  if (kind === "start") return pythonOfStart(given as unknown as StartArguments);
  const run = `wb.attach(${inPython(runId)})`;
  switch (kind) {
    case "stop_trial":
      return `${run}.stop(${keywords(given)})`;
    case "enqueue":
      return `${run}.enqueue(${inPython(given["params"])})`;
    case "save_report":
      return `${run}.report(${inPython(given["to"])})`;
    case "export": {
      const { to, ...rest } = given;
      return `${run}.export(${[inPython(to), keywords(rest)].filter(Boolean).join(", ")})`;
    }
    default:
      return `${run}.${kind}(${keywords(given)})`;
  }
}

function pythonOfStart({ path, settings, name, address }: StartArguments): string {
  const all = { ...settings, ...(name ? { name } : {}) };
  const verb = takesJobs(address) ? "submit" : "sweep";
  const where = address ? `, address=${inPython(address)}` : "";
  if (!Object.keys(all).length) return `wb.${verb}(${inPython(path)}${where})`;
  const read = `read_experiment(${inPython(path)}, ${inPython(all)})`;
  return `from workbench.run import read_experiment\nwb.${verb}(${read}${where})`;
}

function options(given: Record<string, unknown>): string[] {
  return Object.entries(given).flatMap(([name, value]) => [`--${name}`, typeof value === "string" ? value : inYaml(value)]);
}

function assignments(settings: Record<string, unknown>): string[] {
  return Object.entries(settings).flatMap(([name, value]) => ["--set", `${name}=${assigned(value)}`]);
}

/** YAML that reads back as the value: text stands plain where nothing else is written so. */
function assigned(value: unknown): string {
  const isPlain = typeof value === "string" && PLAIN.test(value) && !NO_TEXT.has(value.toLowerCase());
  return isPlain ? value : inYaml(value);
}

function keywords(given: Record<string, unknown>): string {
  return Object.entries(given).map(([name, value]) => `${name}=${inPython(value)}`).join(", ");
}

const inYaml = (value: unknown): string => written(value, { null: "null", true: "true", false: "false" });
const inPython = (value: unknown): string => written(value, { null: "None", true: "True", false: "False" });

function written(value: unknown, constants: Record<"null" | "true" | "false", string>): string {
  if (value == null) return constants.null;
  if (typeof value === "boolean") return constants[`${value}`];
  if (typeof value === "number") return number(value);
  if (Array.isArray(value)) return `[${value.map((one) => written(one, constants)).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${written(one, constants)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** As Python writes it, which turns to powers of ten elsewhere than JavaScript. */
function number(value: number): string {
  const [digits, power] = value.toExponential().split("e");
  const exponent = Number(power);
  if (exponent >= -4 && exponent < 16) return String(value);
  return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}
