// Where problems belong: to a part of the form, and there under a field, or above all where none shows them.
import type { PartName } from "./message_types";
import type { Problem, FormState } from "../types";

/** Which part shows the settings that begin so. What is nowhere else is in the run. */
const PARTS: Record<string, PartName> = {
  model: "model",
  loss: "model",
  data: "data",
  search: "space",
  training: "space",
  plan: "space",
  metrics: "model",
};
const ROW_KEYS = ["low", "high", "step", "log", "choices", "value", "prior.near"];

export function partOf(field: string | null | undefined): PartName {
  return PARTS[(field ?? "").split(".")[0]] ?? "run";
}

export function problemsOf(state: FormState, part: PartName): Problem[] {
  return state.problems.filter((one) => partOf(one.field) === part);
}

/** Those that no field of the part would show. */
export function problemsWithoutField(state: FormState, part: PartName): Problem[] {
  const shown = new Set(["model", "model.name", "data", "data.name", "search", "name", "address"]);
  for (const { name, fields, items } of state.sections) {
    for (const field of fields) shown.add(field.path);
    if (items) shown.add(name);
    for (let at = 0; at < (items?.num_items ?? 0); at += 1) shown.add(`${name}.${at}`);
  }
  for (const row of state.search) {
    const path = `search.${row.name}`;
    shown.add(path);
    for (const key of ROW_KEYS) shown.add(`${path}.${key}`);
    for (const parent of Object.keys(row.when)) shown.add(`${path}.when.${parent}`);
  }
  return problemsOf(state, part).filter((one) => !shown.has(one.field ?? ""));
}
