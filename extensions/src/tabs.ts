// Which views of a run there are.
import type { State, Tab } from "./state";

export const TAB_NAMES: Record<Tab, string> = {
  result: "Result",
  curves: "Curves",
  throughput: "Throughput",
  advice: "Advice",
  analysis: "Analysis",
  log: "Events",
  compare: "Compare",
  resources: "Machines",
  tiers: "Tiers",
};

/** Views that there is something to see in; advice that tries no configurations has no curves. */
export function tabsOf({ view, run }: State): Tab[] {
  const hasTrials = !run || run.kind === "sweep" || Object.keys(run.counts).length > 0;
  const isAdvised = Boolean(run && (run.kind === "advice" || run.card));
  const offered: Record<Tab, boolean> = {
    advice: isAdvised,
    result: Boolean(run?.chosen ?? run?.candidates),
    curves: view.run !== null && hasTrials,
    throughput: view.run !== null && hasTrials && (run?.has_throughput ?? true),
    analysis: view.run !== null,
    log: view.run !== null,
    compare: true,
    resources: true,
    tiers: view.tab === "tiers" || view.tiers !== "",
  };
  return (Object.keys(TAB_NAMES) as Tab[]).filter((tab) => offered[tab]);
}

/** The chosen view, or the first one where the chosen one is not offered. */
export function tabOf(state: State): Tab {
  const tabs = tabsOf(state);
  const { tab } = state.view;
  return tab !== null && tabs.includes(tab) ? tab : tabs[0];
}
