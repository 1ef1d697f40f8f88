// One trial in full: what was tried, how, how far it came, and why it ended.
import type { ComponentChildren } from "preact";
import type { Controller } from "../controller";
import { formatCell, formatCount, formatDuration, formatValue } from "../format";
import type { CourseValue, TrialDetail } from "../types";
import { Attachments } from "./attachments";
import { OfferButton } from "./offers";
import { Empty, StateMark } from "./components";
import { StepParts } from "./throughput";
import { TrialLog } from "./trial_log";

export function Trial({ controller }: { controller: Controller }) {
  const { view } = controller.state;
  const trial = controller.state.trial?.number === view.trial ? controller.state.trial : null;
  return (
    <aside class="workbench-trial" aria-label={`Trial ${view.trial}`}>
      <header class="workbench-bar">
        <h2>Trial {view.trial}</h2>
        {trial ? <StateMark state={trial.state} reason={trial.reason} /> : null}
        <span class="workbench-gap" />
        <button
          type="button"
          class="workbench-quiet"
          aria-label="Close the trial"
          onClick={() => controller.chooseTrial(null)}
        >
          ✕
        </button>
      </header>
      {trial ? <Body trial={trial} controller={controller} /> : <Empty title="Reading the trial …" />}
    </aside>
  );
}

function Body({ trial, controller }: { trial: TrialDetail; controller: Controller }) {
  const { offers } = trial;
  // Functions and programs measure no parts of a step.
  const hasSteps = (controller.state.run?.has_throughput ?? true) || Object.keys(trial.parts_s).length > 0;
  return (
    <>
      {offers.length ? (
        <div class="workbench-offers">
          {offers.map((offer) => (
            <OfferButton key={offer.kind} offer={offer} controller={controller} trial={trial.number} />
          ))}
          <button
            type="button"
            class="workbench-quiet"
            onClick={() => controller.openDialog({ kind: "commands", offers, title: `trial ${trial.number}` })}
          >
            Commands
          </button>
        </div>
      ) : null}
      {trial.message ? (
        <p class={`workbench-notice${trial.state === "failed" ? " workbench-notice-error" : ""}`}>{trial.message}</p>
      ) : null}
      <Pairs title="Result" pairs={Object.entries(trial.values)} />
      <Pairs title="Configuration" pairs={Object.entries(trial.params)} />
      {trial.plan ? (
        <Part title="Plan">
          <p>
            <bdi>{trial.plan}</bdi>
          </p>
        </Part>
      ) : null}
      <Course trial={trial} />
      {hasSteps ? (
        <Part title="Step time">
          <StepParts parts={trial.parts_s} />
        </Part>
      ) : null}
      <Attachments controller={controller} trial={trial} />
      <Setbacks trial={trial} />
      <Traceback text={trial.traceback} />
      <TrialLog controller={controller} />
    </>
  );
}

/** The columns that the table of trials declares, and what only this page shows. */
function Course({ trial }: { trial: TrialDetail }) {
  const others: [string, string][] = [
    ["proposed by", trial.source],
    ["seed", String(trial.seed)],
  ];
  if (trial.workers.length) others.push(["workers", trial.workers.join(", ")]);
  if (trial.processes.length) others.push(["processes", trial.processes.join(", ")]);
  return (
    <Part title="Course">
      <dl class="workbench-pairs">
        {trial.course.map((declared) => (
          <CoursePair key={declared.key} declared={declared} />
        ))}
        {others.map(([name, text]) => (
          <Pair key={name} name={name} text={text} />
        ))}
      </dl>
    </Part>
  );
}

/** A single trial has room for "7 min 7 s" where the table has a column "duration (s)". */
function CoursePair({ declared }: { declared: CourseValue }) {
  const { label, meaning, value, format, unit } = declared;
  if (unit === "s" && typeof value === "number") {
    const name = label.replace(" (s)", "");
    return <Pair name={name} text={formatDuration(value)} meaning={meaning} />;
  }
  return <Pair name={label} text={formatCell(value, format)} meaning={meaning} />;
}

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function Pairs({ title, pairs }: { title: string; pairs: [string, unknown][] }) {
  if (!pairs.length) return null;
  return (
    <Part title={title}>
      <dl class="workbench-pairs">
        {pairs.map(([name, value]) => (
          <Pair key={name} name={name} text={formatValue(value)} />
        ))}
      </dl>
    </Part>
  );
}

function Pair({ name, text, meaning }: { name: string; text: string; meaning?: string }) {
  return (
    <div title={meaning}>
      <dt>
        <bdi>{name}</bdi>
      </dt>
      <dd class="workbench-number">
        <bdi>{text}</bdi>
      </dd>
    </div>
  );
}

function Setbacks({ trial }: { trial: TrialDetail }) {
  if (!trial.setbacks.length && !trial.resizes.length) return null;
  return (
    <Part
      title={formatCount(
        trial.setbacks.length + trial.resizes.length,
        "attempt that ended early",
        "attempts that ended early",
      )}
    >
      <ul class="workbench-setbacks">
        {trial.setbacks.map((setback) => (
          <li key={setback.attempt}>
            <b>
              attempt {setback.attempt + 1}: {setback.reason}
            </b>{" "}
            <bdi>{setback.message}</bdi>
            {Object.entries(setback.next_plan).map(([name, value]) => (
              <span key={name} class="workbench-muted">
                {" "}
                then {name} = {formatValue(value)}
              </span>
            ))}
          </li>
        ))}
        {trial.resizes.map((text) => (
          <li key={text}>
            <bdi>{text}</bdi>
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Traceback({ text }: { text?: string | null }) {
  if (!text) return null;
  return (
    <details open>
      <summary>Traceback</summary>
      <pre tabIndex={0} role="group" dir="ltr" aria-label="Traceback">
        {text}
      </pre>
    </details>
  );
}
