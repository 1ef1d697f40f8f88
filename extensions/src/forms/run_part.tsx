// The run: goal, budget and hardware, the preflight report, the start button, and then the run itself.
import { useEffect, useRef, useState } from "preact/hooks";
import type { KernelModel } from "../kernel_socket";
import { showRun } from "../run_in_cell";
import { Code } from "../views/components";
import { FoldedSection } from "./fields";
import { ListSection } from "./list_section";
import type { ModelCheck } from "./model_part";
import type { PreflightReport } from "../types";
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

interface RunPartProps extends FormProps {
  model: KernelModel;
  modelCheck: ModelCheck;
  runId: string;
}

export function RunPart({ form, model, modelCheck, runId }: RunPartProps) {
  const sections = form.state.sections
    .filter((one) => !ELSEWHERE.has(one.name) && (one.items || one.fields.length))
    .sort((first, second) => placeOf(first.name) - placeOf(second.name));
  const end = useRef<HTMLDivElement>(null);
  const status = form.answer("start")?.status;
  const seen = useRef<{ status?: string; runId: string }>({ runId });
  useEffect(() => {
    // The settings fill the screen: what a start does would happen below it, where nobody looks.
    const isStarting = status === "working" && seen.current.status !== status;
    const isNews = isStarting || seen.current.runId !== runId;
    if (isNews) end.current?.lastElementChild?.scrollIntoView({ block: "nearest" });
    seen.current = { status, runId };
  }, [status, runId]);
  return (
    <>
      {sections.map((section) => (
        <FoldedSection key={section.name} form={form} section={section} isOpen={OPEN_AT_FIRST.has(section.name)}>
          {section.items ? <ListSection form={form} section={section} list={section.items} /> : undefined}
        </FoldedSection>
      ))}
      <div class="workbench-form-end" ref={end}>
        <Start form={form} modelCheck={modelCheck} />
        {runId ? (
          <LiveRun key={runId} model={model} runId={runId} snapshot={form.answer("start")?.result?.snapshot ?? ""} />
        ) : null}
      </div>
    </>
  );
}

function placeOf(name: string): number {
  const at = ORDER.indexOf(name);
  return at < 0 ? ORDER.length : at;
}

function Start({ form, modelCheck }: FormProps & { modelCheck: ModelCheck }) {
  const { state } = form;
  const { hash, address = null } = state;
  useQuery(hash === null ? null : JSON.stringify([hash, address]), () => form.query("preflight"));
  const preflight = form.answer("preflight");
  const start = form.answer("start");
  const isRefused = preflight?.status === "failed" || (preflight?.result?.problems.length ?? 0) > 0;
  const text = form.unappliedText;
  const isStarting = start?.status === "working";
  return (
    <Group title="Start" level={2}>
      <Where form={form} address={address} />
      {hash === null ? (
        <p class="workbench-notice">
          The experiment has problems, shown below their fields. The red count at the top of the form leads there.
        </p>
      ) : (
        <AsyncResult answer={preflight} working="Checking models, data and hardware …">
          {(result) => <Preflight result={result} />}
        </AsyncResult>
      )}
      {modelCheck === "failed" ? (
        <p class="workbench-notice workbench-notice-error">
          Building the model failed, so every trial would fail. The reason is shown below the model.
        </p>
      ) : null}
      {text ? (
        <p class="workbench-notice">
          The {LANGUAGE_NAMES[text]} differs from the experiment that would run. Fix it, or discard your changes.
        </p>
      ) : null}
      <div class="workbench-buttons">
        <button
          type="button"
          class="workbench-primary workbench-form-start"
          disabled={hash === null || isRefused || isStarting || text !== null || form.isDisconnected}
          onClick={() => form.query("start")}
        >
          {isStarting ? "Starting …" : "Start the run"}
        </button>
        <span class="workbench-muted">It continues when you close this notebook.</span>
      </div>
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

/** The live view of a run: from the server, or from the kernel where there is none. */
export function LiveRun({ model, runId, snapshot }: { model: KernelModel; runId: string; snapshot: string }) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(
    () => (element.current ? showRun(element.current, model, { run: runId, snapshot, height: HEIGHT_PX }) : undefined),
    [],
  );
  return <div class="workbench-form-live" style={{ minBlockSize: `${HEIGHT_PX}px` }} ref={element} />;
}
