// What narrows the list of runs: words, a state, a tag, pins, the archive.
import type { Controller } from "../controller";
import type { RunState, ViewState } from "../state";
import type { RunsQuery } from "../types";
import { Search, StateFilter } from "./components";

const RUN_STATES: readonly RunState[] = ["waiting", "running", "stopping", "complete", "stopped", "failed", "lost"];

const ORDERS: readonly [Required<RunsQuery>["sort"], string][] = [
  ["newest", "Newest first"],
  ["result", "Best result first"],
  ["time", "Longest first"],
  ["cost", "Most expensive first"],
];

export function isFiltered({ text, states, tags, archive, pinned }: ViewState["runs"]): boolean {
  return text !== "" || states.length > 0 || tags.length > 0 || archive !== "without" || pinned;
}

/** How the list looks: with less of each run, or as a table over the whole width. */
export function RunLooks({ controller }: { controller: Controller }) {
  const { denseRuns, runsTable } = controller.state.view;
  const hasTable = controller.form === "wide";
  return (
    <>
      {hasTable && runsTable.isShown ? null : (
        <button
          type="button"
          class="workbench-quiet"
          aria-pressed={denseRuns}
          title="One line for each run"
          onClick={() => controller.show({ denseRuns: !denseRuns })}
        >
          Dense
        </button>
      )}
      {hasTable ? (
        <button
          type="button"
          class="workbench-quiet"
          aria-pressed={runsTable.isShown}
          title="All runs over the whole width, with columns and groups of your choice"
          onClick={() => controller.show({ runsTable: { ...runsTable, isShown: !runsTable.isShown } })}
        >
          Table
        </button>
      ) : null}
    </>
  );
}

export function RunFilters({ controller }: { controller: Controller }) {
  const { runs, view } = controller.state;
  const change = (part: Partial<ViewState["runs"]>) => controller.show({ runs: { ...view.runs, ...part } });
  const { tags, archive, pinned, sort } = view.runs;
  const known = [...new Set([...(runs?.tags ?? []), ...tags])];
  return (
    <div class="workbench-bar">
      <Search label="Filter runs" value={view.runs.text} onInput={(text) => change({ text })} />
      <StateFilter
        label="State of runs"
        states={RUN_STATES}
        chosen={view.runs.states}
        onChange={(states) => change({ states })}
      />
      <select
        aria-label="Order of runs"
        value={sort}
        onChange={(event) => change({ sort: event.currentTarget.value as typeof sort })}
      >
        {ORDERS.map(([order, words]) => (
          <option key={order} value={order}>
            {words}
          </option>
        ))}
      </select>
      {known.length ? (
        <select
          aria-label="Tag of runs"
          value={tags[0] ?? ""}
          onChange={(event) => change({ tags: event.currentTarget.value ? [event.currentTarget.value] : [] })}
        >
          <option value="">All tags</option>
          {known.map((tag) => (
            <option key={tag} value={tag}>
              {tag}
            </option>
          ))}
        </select>
      ) : null}
      {runs?.num_pinned || pinned ? (
        <label class="workbench-check">
          <input
            type="checkbox"
            checked={pinned}
            onChange={(event) => change({ pinned: event.currentTarget.checked })}
          />
          pinned ({runs?.num_pinned ?? 0})
        </label>
      ) : null}
      {runs?.num_archived || archive !== "without" ? (
        <label class="workbench-check">
          <input
            type="checkbox"
            checked={archive === "only"}
            onChange={(event) => change({ archive: event.currentTarget.checked ? "only" : "without" })}
          />
          archived ({runs?.num_archived ?? 0})
        </label>
      ) : null}
    </div>
  );
}
