// How a run stands, and what can be done with it.
import type { Controller } from "../controller";
import { formatCount, formatDuration, formatNumber, formatPercent } from "../format";
import { showsImportance } from "../subscription";
import { tabOf } from "../tabs";
import type { RunDetail } from "../types";
import { Decisions } from "./decisions";
import { Empty, Notice, ProgressBar, StateMark } from "./components";
import { Failures } from "./failures";
import { ImportanceLine } from "./importance";
import { Labels } from "./labels";
import { OfferButton, Offers, offersOf } from "./offers";

const ACTIVE = new Set<RunDetail["state"]>(["waiting", "running", "stopping"]);
const FAILED = new Set<RunDetail["state"]>(["failed", "lost"]);

/** As `START_TIMEOUT_S` in `sweeps/launchers.py`: after it nobody waits for a driver any more. */
const MAX_START_S = 300;

const REASONS: Record<string, string> = {
  trials: "all trials are done",
  time: "the time is up",
  target: "the target is reached",
  gpu_time: "the GPU time is up",
  energy: "the energy is used up",
  money: "the money is spent",
  plateau: "no more progress",
  gain: "more would buy too little",
  exhausted: "every combination was tried",
  person: "by the user",
  failures: "its trials failed",
};

/** In a window that is so low curves come first. */
export const LOW = "(max-height: 520px)";
const NARROW = "(max-width: 480px)";

export function Head({ controller }: { controller: Controller }) {
  const { run, problem, view } = controller.state;
  if (!run) {
    return (
      <header class="workbench-head workbench-head-empty">
        <Empty title={problem ? problem.problem : "Reading the run …"}>
          {problem?.next_step ? <p>{problem.next_step}</p> : null}
          {problem ? <p class="workbench-muted">{view.run}</p> : null}
        </Empty>
      </header>
    );
  }
  // In a notebook each line that the head takes is one that curves and trials lack.
  const isOutput = controller.form === "output";
  const isLow = matchMedia(LOW).matches;
  const isSmall = isLow || matchMedia(NARROW).matches;
  const short = run.reason ? (REASONS[run.reason] ?? run.reason) : isStarting(run) ? "starting" : null;
  // How a run ended well, or on request, needs no notice of its own. Why all trials failed is in the summary.
  const isWell = run.state === "complete";
  const isSummed = run.reason === "failures" && run.summary != null;
  const hasNotice = !isWell && !isSummed && run.reason !== "person";
  const reason = isWell && !isOutput && run.kind !== "advice" ? (run.message ?? short) : short;
  return (
    <header class="workbench-head">
      <div class="workbench-bar">
        <h2 class="workbench-run-title" title={`${run.name} (${run.run_id})`}>
          {run.pinned ? (
            <span class="workbench-pin" role="img" aria-label="pinned">
              ◆{" "}
            </span>
          ) : null}
          <bdi>{run.name}</bdi>
        </h2>
        <span role="status" aria-live="polite">
          <StateMark state={run.state} reason={reason} />
        </span>
        {isOutput ? <Facts run={run} isBrief /> : null}
        <span class="workbench-gap" />
        <Offers controller={controller} run={run} />
      </div>
      <ProgressBar
        part={run.loading ?? run.progress}
        label={run.loading == null ? "Progress" : "Reading events"}
        failed={run.state === "failed"}
      />
      {isOutput ? null : <Facts run={run} />}
      {run.reading ? (
        <p class="workbench-notice">
          Reading {run.reading.replace(/ read$/, "")}. Counts and results are those so far.
        </p>
      ) : null}
      {run.chosen_by_hand ? (
        <Notice name={`${run.run_id} chosen ${run.chosen_by_hand.trial}`}>
          Chosen by hand: trial {run.chosen_by_hand.trial}, <bdi>{run.chosen_by_hand.words}</bdi>
        </Notice>
      ) : null}
      {isOutput ? null : <Labels controller={controller} run={run} />}
      {run.message && hasNotice ? (
        <Notice name={`${run.run_id} ${run.message}`} isError={FAILED.has(run.state)}>
          {run.message}
        </Notice>
      ) : null}
      {problem ? <p class="workbench-notice">{problem.problem}</p> : null}
      {run.summary ? (
        <Summary controller={controller} run={run} summary={run.summary} isBrief={isOutput || isSmall} />
      ) : run.best?.certainty?.length ? (
        <Notice name={`${run.run_id} certainty`}>{run.best.certainty.map((sentence) => `${sentence}. `)}</Notice>
      ) : null}
      {isOutput || isLow ? null : showsImportance(controller.state, tabOf(controller.state)) ? (
        <ImportanceLine controller={controller} />
      ) : null}
      {isOutput
        ? null
        : (run.verdicts ?? []).map((verdict) => (
            <Notice key={verdict} name={`${run.run_id} ${verdict}`}>
              {sentenceOf(verdict)}
            </Notice>
          ))}
      <Decisions controller={controller} run={run} />
      <Failures controller={controller} run={run} />
    </header>
  );
}

interface SummaryProps {
  controller: Controller;
  run: RunDetail;
  summary: NonNullable<RunDetail["summary"]>;
  isBrief: boolean;
}

/** The run in sentences, as Python wrote them. In a notebook, or where there is little room, the first one stands for all. */
function Summary({ controller, run, summary, isBrief }: SummaryProps) {
  const { sentences, next_kind, next_lead, next_trial, confirm } = summary;
  const offer = run.offers.find((one) => one.kind === next_kind);
  // What stands beside the menu already needs no second button.
  const isBeside = offer !== undefined && offersOf(run).first?.kind === offer.kind;
  const buttons = (
    <>
      {confirm ? (
        <span class="workbench-summary-next">
          <OfferButton offer={confirm} controller={controller} trial={null} />
        </span>
      ) : null}
      {offer ? (
        <span class="workbench-summary-next">
          Next: {next_lead}
          {isBeside ? "." : <OfferButton offer={offer} controller={controller} trial={null} />}
        </span>
      ) : null}
      {next_trial != null ? (
        <span class="workbench-summary-next">
          Next: {next_lead}
          <button type="button" onClick={() => controller.chooseTrial(next_trial)}>
            Show trial {next_trial}
          </button>
        </span>
      ) : null}
    </>
  );
  const look = run.reason === "failures" ? " workbench-notice-error" : "";
  if (isBrief) {
    const [first, ...rest] = sentences;
    return (
      <details class="workbench-summary" open={next_trial != null}>
        <summary>{first}</summary>
        <p>
          {rest.map(sentenceWithCommand)}
          {buttons}
        </p>
      </details>
    );
  }
  return (
    <p class={`workbench-summary workbench-notice${look}`} role="region" aria-label="Summary">
      {sentences.map(sentenceWithCommand)}
      {buttons}
    </p>
  );
}

/** A sentence, in which a command stays on one line and looks like one. */
function sentenceWithCommand(sentence: string) {
  const [before, command, after] = sentence.split(/(\w+ --\w+ \d+)/);
  return command ? (
    <span key={sentence}>
      {before}
      <code>{command}</code>
      {after}{" "}
    </span>
  ) : (
    `${sentence} `
  );
}

/** What was written to follow a name, as a sentence of its own. */
function sentenceOf(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** Until its driver holds it, which takes seconds where Ray starts first. */
function isStarting(run: RunDetail): boolean {
  return run.state === "waiting" && run.owner === null && run.elapsed_s < MAX_START_S;
}

function Facts({ run, isBrief = false }: { run: RunDetail; isBrief?: boolean }) {
  const { chosen } = run;
  const objective = run.objectives[0];
  const value = chosen ? chosen.value : run.best && objective ? run.best.values[objective.metric] : null;
  const source = chosen ? chosen.model : run.best ? bestTrial(run.best) : (run.no_best ?? null);
  return (
    <dl class={`workbench-facts${ACTIVE.has(run.state) ? " workbench-facts-live" : ""}`}>
      {run.kind === "advice" ? null : run.front && !chosen ? (
        <FrontFacts front={run.front} />
      ) : (
        <BestFact
          label={chosen ? "test" : "best"}
          metric={chosen ? chosen.metric : objective?.metric}
          value={value}
          source={source}
        />
      )}
      {objective?.target == null ? null : <Fact label="target" value={formatNumber(objective.target)} />}
      {isBrief && !ACTIVE.has(run.state) ? null : (
        <Fact label="progress" value={run.loading == null ? formatPercent(run.progress) : "reading …"} />
      )}
      {ACTIVE.has(run.state) ? <TimeLeft run={run} /> : null}
      <Fact label="run time" value={formatDuration(run.elapsed_s)} />
      {chosen || run.candidates ? (
        // Each is trained on several folds, which are trials that nobody asked for.
        <Fact label="candidates" value={String(run.num_configurations)} />
      ) : run.kind === "advice" ? null : (
        <Counts run={run} />
      )}
    </dl>
  );
}

function bestTrial({ trial, num_repeats = 1 }: NonNullable<RunDetail["best"]>): string {
  return num_repeats > 1 ? `mean of ${num_repeats} trials` : `trial ${trial}`;
}

interface BestFactProps {
  label?: string;
  metric: string | undefined;
  value: number | string | null;
  source: string | null;
}

function BestFact({ label = "best", metric, value, source }: BestFactProps) {
  return (
    <div class="workbench-fact-best workbench-fact-long">
      <dt>
        {label} <bdi>{metric}</bdi>
      </dt>
      <dd>
        <span class="workbench-number">{formatNumber(value)}</span>
        {source === null ? null : <small>{source}</small>}
      </dd>
    </div>
  );
}

/** With several objectives no trial is the best: the front is named, and the best value of each objective. */
function FrontFacts({ front }: { front: NonNullable<RunDetail["front"]> }) {
  return (
    <>
      <Fact label="on the front" value={formatCount(front.num_trials, "trial")} />
      {front.extremes.map((one) => (
        <BestFact key={one.metric} metric={one.metric} value={one.value} source={`trial ${one.trial}`} />
      ))}
    </>
  );
}

function TimeLeft({ run }: { run: RunDetail }) {
  const left = formatDuration(run.left_s == null ? null : Math.round(run.left_s));
  // The ends of an interval of many minutes need no seconds, for which there is no room.
  const unit_s = (run.left_high_s ?? 0) > 600 ? 60 : 1;
  const [low, high] = [run.left_low_s, run.left_high_s].map((seconds) =>
    formatDuration(seconds == null ? null : unit_s * Math.round(seconds / unit_s)),
  );
  const range = low === high ? null : `${low} to ${high}`;
  return (
    <div class="workbench-fact-long workbench-fact-left">
      <dt>time left</dt>
      <dd>
        <span class="workbench-number">{left}</span>
        {range === null ? null : <small>{range}</small>}
      </dd>
    </div>
  );
}

function Fact({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd class="workbench-number">{value}</dd>
    </div>
  );
}

const ORDER = ["running", "waiting", "complete", "pruned", "stopped", "failed"];

function Counts({ run }: { run: RunDetail }) {
  const total = Object.values(run.counts).reduce((sum, one) => sum + one, 0);
  if (!total) return <Fact label="trials" value="0" />;
  return (
    <div class="workbench-fact-counts">
      <dt>
        {formatCount(total, "trial")}
        {run.reading ? " so far" : ""}
        {run.num_configurations < total ? ` of ${formatCount(run.num_configurations, "configuration")}` : ""}
      </dt>
      <dd>
        {ORDER.filter((state) => run.counts[state]).map((state) => (
          <span key={state} class={`workbench-count workbench-state-${state}`}>
            <span class="workbench-dot" aria-hidden="true" />
            <b class="workbench-number">{formatCount(run.counts[state])}</b> {state}
          </span>
        ))}
      </dd>
    </div>
  );
}
