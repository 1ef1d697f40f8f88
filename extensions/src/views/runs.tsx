// The list of runs: what there is, how far it is, how good it is.
import type { Controller } from "../controller";
import { formatCount, formatAge } from "../format";
import { FIRST_VIEW, type RunState } from "../state";
import type { RunItem } from "../types";
import { Code, Empty, ProgressBar, Search, StateFilter, StateMark } from "./components";

const RUN_STATES: readonly RunState[] = ["waiting", "running", "stopping", "complete", "stopped", "failed", "lost"];

const ACTIVE = new Set<RunState>(["waiting", "running", "stopping"]);

export function Runs({ controller }: { controller: Controller }) {
  const { runs, view } = controller.state;
  const filtered = view.runs.text !== "" || view.runs.states.length > 0;
  return (
    <section class="workbench-runs" aria-label="Runs">
      <header class="workbench-bar">
        <h2>Runs</h2>
        {runs ? <span class="workbench-muted workbench-number">{runs.total}</span> : null}
        <span class="workbench-gap" />
        <button type="button" class="workbench-primary" onClick={() => controller.openDialog({ kind: "start" })}>
          Start…
        </button>
      </header>
      <div class="workbench-bar">
        <Search
          label="Filter runs"
          value={view.runs.text}
          onInput={(text) => controller.show({ runs: { ...view.runs, text } })}
        />
        <StateFilter
          label="State of runs"
          states={RUN_STATES}
          chosen={view.runs.states}
          onChange={(states) => controller.show({ runs: { ...view.runs, states } })}
        />
      </div>
      {runs?.items.length ? (
        <ul class="workbench-run-list">
          {runs.items.map((item) => (
            <Item key={item.run_id} item={item} controller={controller} />
          ))}
          {runs.total > runs.items.length ? (
            <li class="workbench-muted">{runs.total - runs.items.length} more: filter to find them.</li>
          ) : null}
        </ul>
      ) : (
        <NoRuns controller={controller} known={runs !== null} filtered={filtered} />
      )}
    </section>
  );
}

function NoRuns(props: { controller: Controller; known: boolean; filtered: boolean }) {
  const { controller, known, filtered } = props;
  if (!known) return <Empty title="Reading the runs …" />;
  if (filtered) {
    return (
      <Empty title="No run matches">
        <button type="button" onClick={() => controller.show({ runs: FIRST_VIEW.runs })}>
          Show all
        </button>
      </Empty>
    );
  }
  return (
    <Empty title="No runs yet">
      <p>Start one from an experiment file with the button above, or in a terminal:</p>
      <Code label="command" text="workbench sweep experiment.yaml" />
    </Empty>
  );
}

function Item({ item, controller }: { item: RunItem; controller: Controller }) {
  const { view } = controller.state;
  const chosen = item.run_id === view.run;
  const compared = view.compared.includes(item.run_id);
  const compare = () =>
    controller.show({
      compared: compared ? view.compared.filter((one) => one !== item.run_id) : [...view.compared, item.run_id],
    });
  return (
    <li class={`workbench-run${chosen ? " workbench-chosen" : ""}`}>
      <button
        type="button"
        class="workbench-run-button"
        aria-current={chosen ? "true" : undefined}
        onClick={() => controller.selectRun(item.run_id)}
        title={`${item.name} (${item.run_id})`}
      >
        <span class="workbench-run-line">
          <bdi class="workbench-run-name">{item.name}</bdi>
          <span class="workbench-muted">{formatAge(Date.now() / 1000 - item.created_unix_s)}</span>
        </span>
        <span class="workbench-run-line workbench-muted">
          <StateMark state={item.state} />
          <span>{item.kind === "advice" ? "advice" : formatCount(item.num_trials, "trial")}</span>
          {item.owner && ACTIVE.has(item.state) ? <bdi class="workbench-run-owner">{item.owner}</bdi> : null}
        </span>
        <span class="workbench-run-line">
          <bdi class="workbench-run-best workbench-number">{item.best ?? "–"}</bdi>
        </span>
      </button>
      {ACTIVE.has(item.state) && item.state !== "waiting" ? (
        <ProgressBar part={item.progress} label={`Progress of ${item.name}`} />
      ) : null}
      {controller.form === "wide" ? (
        <label class="workbench-compare">
          <input type="checkbox" checked={compared} onChange={compare} aria-label={`Compare ${item.name}`} />
          <span aria-hidden="true">compare</span>
        </label>
      ) : null}
    </li>
  );
}
