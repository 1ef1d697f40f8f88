// From what a person chose to see to what the server is asked for: only what is on the screen.
import type { State, Tab } from "./state";
import { counterpartOf } from "./counterpart";
import { tabOf } from "./tabs";
import type { ChartQuery, RunsQuery, Subscription } from "./types";

export type Form = "panel" | "wide" | "output";

/** Rows of the table that are on the screen or close to it. */
export interface Window {
  offset: number;
  limit: number;
}

const MAX_CHOSEN = 40;
export const MAX_FURTHER = 5;
export const MAX_COMPARED = 12;

export function subscriptionOf(state: State, form: Form, window: Window, runsWindow: Window): Subscription {
  const { view } = state;
  const tab = form === "wide" ? tabOf(state) : null;
  const subscription: Subscription = {};
  if (form !== "output") subscription.runs = { ...view.runs, ...runsWindow, ...tableOf(state, form) };
  if (tab === "resources") subscription.resources = true;
  if (tab === "compare" && view.compared.length) {
    const { metric, axis } = view.comparison;
    subscription.compared = { runs: view.compared.slice(0, MAX_COMPARED), metric, axis };
  }
  if (view.run === null) return subscription;
  subscription.run = view.run;
  subscription.log_after = state.logSeq;
  const trial = shownTrial(state, tab);
  if (trial !== null) {
    subscription.trial = trial;
    // Where only the step time of a trial is shown, what it printed is not.
    if (tab !== "throughput") subscription.trial_log = view.trialLog;
  }
  const chart = chartOf(state, tab, trial);
  if (chart) subscription.chart = chart;
  if (tab === "analysis" || showsFront(state, tab)) {
    subscription.analysis = { text: view.table.text, attempt: state.importanceAttempt };
  }
  // What mattered is part of the answer to how a run ended.
  else if (showsImportance(state, tab)) subscription.importance = true;
  if (tab === null || tab === "curves") {
    // Which columns are shown is decided here: all come.
    subscription.table = { ...view.table, columns: [], ...window };
  }
  return subscription;
}

/** What the table of runs needs beyond the list. */
function tableOf({ view }: State, form: Form): Partial<RunsQuery> {
  const { isShown, params, group, member } = view.runsTable;
  if (!isShown || form !== "wide") return {};
  return { is_table: true, params, group, ...(group && member !== null ? { member } : {}) };
}

/** While nobody can see the view only its title matters. */
export function hiddenSubscription(state: State): Subscription {
  return state.view.run === null ? {} : { run: state.view.run, log_after: state.logSeq };
}

/** Whether the front takes the place of the curves, until a person chooses a metric. */
export function showsFront({ view, run }: State, tab: Tab | null): boolean {
  return (tab === null || tab === "curves") && Boolean(run?.front) && view.chart.metric === "";
}

/** Whether the head of a run has the importance of its parameters. */
export function showsImportance({ run }: State, tab: Tab | null): boolean {
  return tab === "curves" && Boolean(run?.summary) && run?.objectives.length === 1;
}

/** `tab` is null where there are no tabs, and everything is below each other. */
function chartOf(state: State, tab: Tab | null, trial: number | null): ChartQuery | null {
  const { view } = state;
  if (tab !== null && tab !== "curves" && tab !== "throughput") return null;
  const { metric, axis, shown, chosen } = view.chart;
  const all = view.trial === null || trial === null ? chosen : [...new Set([...chosen, trial])];
  const { text } = view.table;
  const query = { axis, shown, chosen: all.slice(-MAX_CHOSEN), ...(text ? { text } : {}) };
  if (tab === "throughput") return { ...query, metric: "samples_per_s" };
  const further = furtherOf(state);
  return further.length ? { ...query, metric, further } : { ...query, metric };
}

/** The metrics that are drawn beside the first, and the one that is drawn with it. */
function furtherOf({ view, run, chart }: State): string[] {
  const metric = view.chart.metric || chart?.update.metric || run?.metrics[0] || "";
  const other = view.chart.withOther ? counterpartOf(metric, run?.metrics ?? []) : null;
  const further = view.chart.further.filter((one) => one !== metric);
  return [...new Set(other === null ? further : [other, ...further])].slice(0, MAX_FURTHER);
}

/** The trial that is shown in full; beside the throughput, the best one where nobody chose another. */
function shownTrial({ view, run }: State, tab: Tab | null): number | null {
  if (tab === null || tab === "curves" || tab === "analysis" || tab === "resources") return view.trial;
  return tab === "throughput" ? (view.trial ?? run?.best?.trial ?? null) : null;
}
