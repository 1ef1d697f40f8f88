// From what a person chose to see to what the server is asked for: only what is on the screen.
import type { State, Tab, ViewState } from "./state";
import { tabOf } from "./tabs";
import type { ChartLook, Look } from "./types";

export type Form = "panel" | "wide" | "output";

/** Rows of the table that are on the screen or close to it. */
export interface Window {
  offset: number;
  limit: number;
}

const MOST_CHOSEN = 40;
const MOST_COMPARED = 12;

export function lookOf(state: State, form: Form, window: Window): Look {
  const { view } = state;
  const tab = form === "wide" ? tabOf(state) : null;
  const look: Look = {};
  if (form !== "output") look.runs = { ...view.runs, limit: 100 };
  if (tab === "resources") look.resources = true;
  if (tab === "compare") look.compared = view.compared.slice(0, MOST_COMPARED);
  if (view.run === null) return look;
  look.run = view.run;
  look.log_after = state.logSeq;
  const trial = form === "output" ? null : shownTrial(state, tab);
  if (trial !== null) look.trial = trial;
  const chart = chartOf(view, tab, trial);
  if (chart) look.chart = chart;
  if (tab === null || tab === "curves") {
    look.table = { ...view.table, ...window };
  }
  return look;
}

/** While nobody can see the view only its title matters. */
export function hiddenLook(state: State): Look {
  return state.view.run === null ? {} : { run: state.view.run, log_after: state.logSeq };
}

/** `tab` is null where there are no tabs, and everything is below each other. */
function chartOf(view: ViewState, tab: Tab | null, trial: number | null): ChartLook | null {
  if (tab !== null && tab !== "curves" && tab !== "throughput") return null;
  const { metric, axis, shown, chosen } = view.chart;
  const all = view.trial === null || trial === null ? chosen : [...new Set([...chosen, trial])];
  return {
    metric: tab === "throughput" ? "samples_per_s" : metric,
    axis,
    shown,
    chosen: all.slice(-MOST_CHOSEN),
  };
}

/** The trial that is shown in full; beside the throughput, the best one where nobody chose another. */
function shownTrial({ view, run }: State, tab: Tab | null): number | null {
  if (tab === null || tab === "curves") return view.trial;
  return tab === "throughput" ? (view.trial ?? run?.best?.trial ?? null) : null;
}
