// The list of runs: what there is, how far it is, how good it is. Only the rows on the screen exist.
import { useEffect, useRef } from "preact/hooks";
import type { Controller } from "../controller";
import { formatAge, formatClock, formatCount, formatDuration } from "../format";
import { FIRST_VIEW, type RunState } from "../state";
import type { RunItem, RunList } from "../types";
import { Empty, ProgressBar, StateMark } from "./components";
import { FirstSteps } from "./first_steps";
import { isFiltered, RunFilters, RunLooks } from "./run_filters";
import { RunsTable } from "./runs_table";
import { Sparkline } from "./sparkline";
import { windowAround } from "./window";

const ACTIVE = new Set<RunState>(["waiting", "running", "stopping"]);
/** Heights of a run in the list, as in the style sheet. */
const RUN_PX = 68;
const DENSE_RUN_PX = 28;

export function Runs({ controller }: { controller: Controller }) {
  const { runs, view } = controller.state;
  // The primary action is then the example.
  const hasNone = runs?.total === 0 && !isFiltered(view.runs);
  const isTable = controller.form === "wide" && view.runsTable.isShown;
  return (
    <section class="workbench-runs" aria-label="Runs">
      <header class="workbench-bar">
        <h2>Runs</h2>
        {runs ? <span class="workbench-muted workbench-number">{formatCount(runs.total)}</span> : null}
        <span class="workbench-gap" />
        {hasNone ? null : <RunLooks controller={controller} />}
        <button
          type="button"
          class={hasNone ? undefined : "workbench-primary"}
          onClick={() => controller.openDialog({ kind: "start" })}
        >
          Start…
        </button>
      </header>
      {hasNone ? null : <RunFilters controller={controller} />}
      {runs?.total && isTable ? (
        <RunsTable controller={controller} runs={runs} />
      ) : runs?.total ? (
        <List controller={controller} runs={runs} />
      ) : (
        <NoRuns controller={controller} known={runs !== null} filtered={isFiltered(view.runs)} />
      )}
    </section>
  );
}

function List({ controller, runs }: { controller: Controller; runs: RunList }) {
  const { view } = controller.state;
  const box = useRef<HTMLUListElement>(null);
  useEffect(() => {
    if (box.current) box.current.scrollTop = 0;
  }, [view.runs, view.denseRuns]);
  const offset = runs.offset ?? 0;
  const rowPx = view.denseRuns ? DENSE_RUN_PX : RUN_PX;
  const scrolled = (list: HTMLElement) => {
    const next = windowAround(list, rowPx, runs.total, controller.runsWindow);
    if (next) controller.showRunsWindow(next);
  };
  return (
    <ul ref={box} class="workbench-run-list" onScroll={(event) => scrolled(event.currentTarget)}>
      <Spacer px={offset * rowPx} />
      {runs.items.map((item) => (
        <Item key={item.run_id} item={item} controller={controller} />
      ))}
      <Spacer px={Math.max(0, runs.total - offset - runs.items.length) * rowPx} />
    </ul>
  );
}

/** Takes the place of runs that are not on the screen. */
function Spacer({ px }: { px: number }) {
  return px ? <li aria-hidden="true" style={{ flex: "none", blockSize: `${px}px` }} /> : null;
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
  return <FirstSteps controller={controller} />;
}

function Item({ item, controller }: { item: RunItem; controller: Controller }) {
  const { view } = controller.state;
  const chosen = item.run_id === view.run;
  const compared = view.compared.includes(item.run_id);
  const compare = () =>
    controller.show({
      compared: compared ? view.compared.filter((one) => one !== item.run_id) : [...view.compared, item.run_id],
    });
  const isShared = (controller.state.runs?.items ?? []).some(
    (one) => one.name === item.name && one.run_id !== item.run_id,
  );
  const apart = isShared ? apartOf(item) : null;
  const words = [`${item.name} (${item.run_id})`, `created ${formatClock(item.created_unix_s)}`];
  if (item.version != null) words.push(`version ${item.version} of its experiment`);
  return (
    <li class={`workbench-run${chosen ? " workbench-chosen" : ""}${view.denseRuns ? " workbench-run-dense" : ""}`}>
      <button
        type="button"
        class="workbench-run-button"
        aria-current={chosen ? "true" : undefined}
        onClick={() => controller.selectRun(item.run_id)}
        title={[...words, ...(item.tags ?? [])].join("\n")}
      >
        {view.denseRuns ? (
          <DenseLine item={item} apart={apart} controller={controller} />
        ) : (
          <Lines item={item} apart={apart} controller={controller} />
        )}
      </button>
      {ACTIVE.has(item.state) && item.state !== "waiting" ? (
        <ProgressBar part={item.progress} label={`Progress of ${item.name}`} />
      ) : null}
      {controller.form === "wide" ? (
        <label class="workbench-compare" title="Compare">
          <input type="checkbox" checked={compared} onChange={compare} aria-label={`Compare ${item.name}`} />
        </label>
      ) : null}
    </li>
  );
}

interface LineProps {
  item: RunItem;
  /** What tells it from runs of its name; null where no other has it. */
  apart: string | null;
  controller: Controller;
}

function Name({ item, apart }: Pick<LineProps, "item" | "apart">) {
  return (
    <>
      {item.pinned ? (
        <span class="workbench-pin" role="img" aria-label="pinned">
          ◆
        </span>
      ) : null}
      <bdi class="workbench-run-name">{item.name}</bdi>
      {apart === null ? null : <span class="workbench-run-apart workbench-muted">{apart}</span>}
    </>
  );
}

/** What the runs are sorted by, or else the age of one. */
function measureOf(item: RunItem, { state }: Controller): string {
  const { sort } = state.view.runs;
  if (sort === "time") return formatDuration(item.elapsed_s);
  if (sort === "cost") return item.cost_text ?? "no price";
  return formatAge(state.nowUnixS - item.created_unix_s);
}

/** A value without its metric, and what the list is sorted by unless that is the value: the name needs the room. */
function DenseLine({ item, apart, controller }: LineProps) {
  const text = item.best ?? withoutResult(item);
  return (
    <span class="workbench-run-line">
      <StateMark state={item.state} />
      <Name item={item} apart={apart} />
      <span class="workbench-number" title={text}>
        {valueIn(text)?.value ?? text}
      </span>
      {controller.state.view.runs.sort === "result" ? null : (
        <span class="workbench-muted">{measureOf(item, controller)}</span>
      )}
    </span>
  );
}

function Lines({ item, apart, controller }: LineProps) {
  const tags = item.tags ?? [];
  return (
    <>
      <span class="workbench-run-line">
        <Name item={item} apart={apart} />
        <span class="workbench-muted">{measureOf(item, controller)}</span>
      </span>
      <span class="workbench-run-line workbench-muted">
        <StateMark state={item.state} />
        <span>{countOf(item)}</span>
        <span class="workbench-run-labels">
          {tags.map((tag) => (
            <span key={tag} class="workbench-tag">
              <bdi>{tag}</bdi>
            </span>
          ))}
          {!tags.length && item.owner && ACTIVE.has(item.state) ? <bdi>{item.owner}</bdi> : null}
        </span>
      </span>
      <span class="workbench-run-line">
        <Result text={item.best ?? withoutResult(item)} />
        <Sparkline values={item.spark ?? []} />
      </span>
    </>
  );
}

function countOf(item: RunItem): string {
  if (item.kind === "advice") return "advice";
  // Each candidate is trained on several folds, which are trials that nobody asked for.
  if (item.num_candidates != null) return formatCount(item.num_candidates, "candidate");
  return item.num_trials === null ? "" : formatCount(item.num_trials, "trial");
}

/** What tells runs of one name apart: the end of the run id, and the version of the experiment. */
function apartOf({ run_id, version }: RunItem): string {
  const id = run_id.slice(run_id.lastIndexOf("-") + 1);
  return version == null ? id : `${id} v${version}`;
}

function withoutResult({ kind, state, num_trials }: RunItem): string {
  if (num_trials === null) return "";
  if (ACTIVE.has(state)) return "no result yet";
  if (kind === "advice" && state === "complete") return "ready to apply";
  return "no result";
}

function valueIn(text: string): { name: string; value: string } | null {
  const [, name, value] = /^(.+) ([-+]?\d\S*)$/.exec(text) ?? [];
  return name === undefined || value === undefined ? null : { name, value };
}

/** A metric and its value: where there is no room for both, the name is cut, never the number. */
function Result({ text }: { text: string }) {
  const parts = valueIn(text);
  return (
    <bdi class="workbench-run-best workbench-number" title={text}>
      <span>{parts?.name ?? text}</span>
      {parts === null ? null : <b> {parts.value}</b>}
    </bdi>
  );
}
