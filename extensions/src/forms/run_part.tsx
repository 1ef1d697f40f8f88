// The run: the start button of the bar, the preflight report, goal, budget and hardware, and the run itself.
import { useEffect, useRef, useState, type MutableRef } from "preact/hooks";
import type { KernelModel } from "../kernel_socket";
import { showRun } from "../run_in_cell";
import { Code } from "../views/components";
import { FoldedSection } from "./fields";
import { ListSection } from "./list_section";
import type { KernelConnection } from "./kernel_connection";
import type { PartName } from "./message_types";
import type { ModelCheck } from "./model_part";
import type { PreflightReport, Problem } from "../types";
import { AsyncResult } from "./async_result";
import { LANGUAGE_NAMES } from "./text_editors";
import {
  Group,
  problemsAt,
  FieldProblems,
  ProblemText,
  TextInput,
  useQuery,
  useUniqueId,
  useTextField,
  type FormProps,
  Sentence,
} from "./text_field";

/** The order in which users decide; other sections of the kernel follow. */
const ORDER = [
  "objectives",
  "constraints",
  "budget",
  "early_stop",
  "resources",
  "advise",
  "alerts",
  "sampler",
  "experiment",
];
const OPEN_AT_FIRST = new Set(["objectives", "budget"]);
const ELSEWHERE = new Set(["model", "loss", "data", "training", "plan", "search"]);
const HEIGHT_PX = 620;
const MODEL_FAILED = "Building the model failed, so every trial would fail. The reason is shown below the model.";

/** The pause is longer while the result is not on the screen. */
const PAUSE_MS = 250;
const PAUSE_HIDDEN_MS = 1500;

/** Has the kernel check whenever something has changed that a run depends on. */
export function usePreflight(form: KernelConnection, parts: PartName[], isShown: boolean): void {
  const { state } = form;
  const isWanted = parts.includes("run") && state !== null && state.hash !== null;
  const key = isWanted ? JSON.stringify([state.hash, state.address]) : null;
  useQuery(key, () => form.query("preflight"), isShown ? PAUSE_MS : PAUSE_HIDDEN_MS);
}

interface StartProps extends FormProps {
  modelCheck: ModelCheck;
}

/** Why a run cannot be started, in a sentence or a problem; null where it can. */
function refusalOf({ form }: FormProps): string | Problem | null {
  const { hash } = form.state;
  const preflight = form.answer("preflight");
  const text = form.unappliedText;
  if (hash === null) return "The experiment has problems, shown below their fields. The red count leads there.";
  if (text) {
    return `The ${LANGUAGE_NAMES[text]} differs from the experiment that would run. Fix it, or discard your changes.`;
  }
  if (preflight?.status === "failed") return preflight.problem;
  return preflight?.result?.problems[0] ?? null;
}

/** Starts the run, or says why it cannot be started; beside it, how long it should take. */
export function StartButton({ form, modelCheck, onStart }: StartProps & { onStart(): void }) {
  const id = useUniqueId();
  const refusal = refusalOf({ form });
  const preflight = form.answer("preflight");
  const start = form.answer("start");
  const isStarting = start?.status === "working";
  const isChecking = preflight?.status === "working";
  const forecast = preflight?.result && !isChecking ? preflight.result.forecast[0] : null;
  const failure = start?.status === "failed" && start.problem?.field !== "address" ? start.problem : null;
  const words = refusal ?? failure ?? (modelCheck === "failed" ? MODEL_FAILED : null);
  return (
    <>
      {forecast && refusal === null ? (
        <span class="workbench-muted workbench-form-forecast" title={forecast}>
          {preflight?.result?.duration}
        </span>
      ) : null}
      <button
        type="button"
        class="workbench-primary workbench-form-start"
        aria-label="Start the run"
        aria-describedby={`${id}-why`}
        title="It continues when you close this notebook"
        disabled={refusal !== null || isStarting || form.isDisconnected}
        onClick={() => {
          form.query("start");
          onStart();
        }}
      >
        {isStarting ? "Starting …" : "Start"}
      </button>
      <span id={`${id}-why`} class="workbench-form-why-not" role="status">
        {words === null ? null : typeof words === "string" ? words : <ProblemText problem={words} withField />}
      </span>
    </>
  );
}

export function RunPart({ form }: FormProps) {
  const sections = form.state.sections
    .filter((one) => !ELSEWHERE.has(one.name) && (one.items || one.fields.length))
    .sort((first, second) => placeOf(first.name) - placeOf(second.name));
  return (
    <>
      <Start form={form} />
      {sections.map((section) => (
        <FoldedSection key={section.name} form={form} section={section} isOpen={OPEN_AT_FIRST.has(section.name)}>
          {section.items ? <ListSection form={form} section={section} list={section.items} /> : undefined}
        </FoldedSection>
      ))}
    </>
  );
}

function placeOf(name: string): number {
  const at = ORDER.indexOf(name);
  return at < 0 ? ORDER.length : at;
}

function Start({ form }: FormProps) {
  const { state } = form;
  const { hash, address = null } = state;
  const start = form.answer("start");
  return (
    <Group title="What it will do" level={2}>
      <Where form={form} address={address} />
      {hash === null ? null : (
        <AsyncResult answer={form.answer("preflight")} working="Checking models, data and hardware …">
          {(result) => <Preflight result={result} />}
        </AsyncResult>
      )}
      <AsyncResult answer={start?.problem?.field === "address" ? null : start} working="Starting …">
        {(result) => (result.message ? <p class="workbench-notice">{result.message}</p> : null)}
      </AsyncResult>
      <details class="workbench-form-details">
        <summary>Use a terminal or Python instead</summary>
        {state.is_saved ? null : <p class="workbench-hint">The command runs the file: save your changes first.</p>}
        <Code label="command" text={state.command} />
        <Code label="Python" text={state.python} />
      </details>
    </Group>
  );
}

function Where({ form, address }: FormProps & { address: string | null }) {
  const id = useUniqueId();
  // Shows the click at once, since the kernel may be busy.
  const [wantsCluster, setWantsCluster] = useState<boolean | null>(null);
  useEffect(() => setWantsCluster(null), [address]);
  const say = (text: string): number => {
    if (form.answer("start")?.status === "failed") form.forget("start"); // it may have failed for the previous address
    return form.send({ type: "address", address: text.trim() || null });
  };
  const typed = useTextField(form, address ?? "", say);
  const choose = (isCluster: boolean) => {
    setWantsCluster(isCluster);
    if (!isCluster && address !== null) say("");
  };
  const isCluster = wantsCluster ?? address !== null;
  const unreachable = form.answer("start")?.problem;
  const problems = [...problemsAt(form, "address"), ...(unreachable?.field === "address" ? [unreachable] : [])];
  return (
    <div class="workbench-form-where" role="radiogroup" aria-labelledby={`${id}-where`}>
      <span id={`${id}-where`}>Where</span>
      <label class="workbench-check">
        <input type="radio" name={id} checked={!isCluster} onChange={() => choose(false)} />
        this machine
      </label>
      <label class="workbench-check">
        <input type="radio" name={id} checked={isCluster} onChange={() => choose(true)} />a Ray cluster
      </label>
      {isCluster ? (
        <div class="workbench-form-input">
          <label for={`${id}-address`}>Address of the cluster</label>
          <TextInput
            typed={typed}
            id={`${id}-address`}
            placeholder="http://head:8265, or head:6379"
            isWrong={problems.length > 0}
            describedBy={`${id}-problem ${id}-hint`}
          />
          <FieldProblems id={`${id}-problem`} problems={problems} />
          <span id={`${id}-hint`} class="workbench-hint">
            With http://, the run is submitted as a job. HOST:PORT attaches to a cluster that this machine belongs to.
          </span>
        </div>
      ) : null}
    </div>
  );
}

function Preflight({ result }: { result: PreflightReport }) {
  return (
    <div class="workbench-form-preflight">
      {result.problems.map((problem) => (
        <p key={problem.problem} class="workbench-notice workbench-notice-error">
          <ProblemText problem={problem} withField />
        </p>
      ))}
      <ul>
        {[...result.lines, ...result.forecast].map((line) => (
          <li key={line}>
            <Sentence text={line} />
          </li>
        ))}
      </ul>
      {result.notes.map((note) => (
        <p key={note} class="workbench-notice">
          <Sentence text={note} />
        </p>
      ))}
    </div>
  );
}

interface LiveRunProps {
  model: KernelModel;
  runId: string;
  snapshot: string;
  /** The run that was in view before. Another one comes into view. */
  seenRun: MutableRef<string>;
}

/** The live view of a run: from the server, or from the kernel where there is none. */
export function LiveRun({ model, runId, snapshot, seenRun }: LiveRunProps) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!element.current) return;
    // The settings fill the screen: the run would appear below it, where nobody looks.
    if (seenRun.current !== runId) element.current.scrollIntoView({ block: "nearest" });
    seenRun.current = runId;
    return showRun(element.current, model, { run: runId, snapshot, height: HEIGHT_PX });
  }, []);
  return <div class="workbench-form-live" style={{ minBlockSize: `${HEIGHT_PX}px` }} ref={element} />;
}
