// The run: goal, budget and hardware, what is said before it starts, one button, and then the run itself.
import { useEffect, useRef, useState } from "preact/hooks";
import type { KernelModel } from "../kernel_socket";
import { showRun } from "../run_in_cell";
import { Code } from "../views/pieces";
import { FoldedSection } from "./fields";
import { Items } from "./items";
import type { Verdict } from "./model_part";
import type { PreflightPicture } from "./protocol";
import { Slowly } from "./slowly";
import { LANGUAGE_NAMES } from "./texts";
import { Group, problemsAt, ProblemsUnder, ProblemWords, TextInput, useAsked, useOwnId, useTyped, type FormProps } from "./typed";

/** In the order in which a person decides; further ones of the kernel follow. */
const ORDER = ["objectives", "constraints", "budget", "early_stop", "resources", "alerts", "sampler", "experiment"];
const OPEN_AT_FIRST = new Set(["objectives", "budget"]);
const ELSEWHERE = new Set(["model", "loss", "data", "training", "plan", "search"]);
const HEIGHT_PX = 620;

interface RunPartProps extends FormProps {
  model: KernelModel;
  verdict: Verdict;
  runId: string;
}

export function RunPart({ form, model, verdict, runId }: RunPartProps) {
  const sections = form
    .state!.sections.filter((one) => !ELSEWHERE.has(one.name) && (one.list || one.fields.length))
    .sort((first, second) => placeOf(first.name) - placeOf(second.name));
  return (
    <>
      {sections.map((section) => (
        <FoldedSection key={section.name} form={form} section={section} isOpen={OPEN_AT_FIRST.has(section.name)}>
          {section.list ? <Items form={form} section={section} list={section.list} /> : undefined}
        </FoldedSection>
      ))}
      <Start form={form} verdict={verdict} />
      {runId ? <LiveRun key={runId} model={model} runId={runId} snapshot={form.part("start")?.picture?.snapshot ?? ""} /> : null}
    </>
  );
}

function placeOf(name: string): number {
  const at = ORDER.indexOf(name);
  return at < 0 ? ORDER.length : at;
}

function Start({ form, verdict }: FormProps & { verdict: Verdict }) {
  const { state } = form;
  const { hash, address = null } = state!;
  useAsked(hash === null ? null : JSON.stringify([hash, address]), () => form.ask("preflight"));
  const preflight = form.part("preflight");
  const start = form.part("start");
  const isRefused = preflight?.status === "failed" || (preflight?.picture?.problems.length ?? 0) > 0;
  const text = form.unappliedText;
  const isStarting = start?.status === "working";
  return (
    <Group title="Start" level={2}>
      <Where form={form} address={address} />
      {hash === null ? (
        <p class="workbench-notice">Something is wrong, and said under its field. The red count at the top of the form leads there.</p>
      ) : (
        <Slowly held={preflight} working="Checking models, data and hardware …">
          {(picture) => <Preflight picture={picture} />}
        </Slowly>
      )}
      {verdict === "refused" ? (
        <p class="workbench-notice workbench-notice-error">
          Building the model failed, and every trial would fail with it. The reason stands below the model.
        </p>
      ) : null}
      {text ? (
        <p class="workbench-notice">
          The {LANGUAGE_NAMES[text]} says something else than what would run. Mend it, or give up what was typed.
        </p>
      ) : null}
      <div class="workbench-buttons">
        <button
          type="button"
          class="workbench-primary workbench-form-start"
          disabled={hash === null || isRefused || isStarting || text !== null || form.isCutOff}
          onClick={() => form.ask("start")}
        >
          {isStarting ? "Starting …" : "Start the run"}
        </button>
        <span class="workbench-muted">It goes on when this notebook is closed.</span>
      </div>
      <Slowly held={start?.problem?.field === "address" ? null : start} working="Starting …">
        {(picture) => (picture.words ? <p class="workbench-notice">{picture.words}</p> : null)}
      </Slowly>
      <details class="workbench-form-details">
        <summary>The same from a terminal and from Python</summary>
        {state!.is_saved ? null : <p class="workbench-hint">The command runs the file: save the experiment as it is now first.</p>}
        <Code label="command" text={state!.command} />
        <Code label="Python" text={state!.python} />
      </details>
    </Group>
  );
}

function Where({ form, address }: FormProps & { address: string | null }) {
  const id = useOwnId();
  // What was clicked, until the kernel has another address: it may be busy.
  const [wantsCluster, setWantsCluster] = useState<boolean | null>(null);
  useEffect(() => setWantsCluster(null), [address]);
  const say = (text: string): number => {
    if (form.part("start")?.status === "failed") form.forget("start"); // perhaps for the address before
    return form.say({ type: "address", address: text.trim() || null });
  };
  const typed = useTyped(form, address ?? "", say);
  const choose = (isCluster: boolean) => {
    setWantsCluster(isCluster);
    if (!isCluster && address !== null) say("");
  };
  const isCluster = wantsCluster ?? address !== null;
  const unreachable = form.part("start")?.problem;
  const problems = [...problemsAt(form, "address"), ...(unreachable?.field === "address" ? [unreachable] : [])];
  return (
    <div class="workbench-form-where" role="radiogroup" aria-labelledby={`${id}-where`}>
      <span id={`${id}-where`}>Where</span>
      <label class="workbench-check">
        <input type="radio" name={id} checked={!isCluster} onChange={() => choose(false)} />
        this machine
      </label>
      <label class="workbench-check">
        <input type="radio" name={id} checked={isCluster} onChange={() => choose(true)} />
        a Ray cluster
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
          <ProblemsUnder id={`${id}-problem`} problems={problems} />
          <span id={`${id}-hint`} class="workbench-hint">
            With http:// the run is submitted there. HOST:PORT attaches to a cluster that this machine belongs to.
          </span>
        </div>
      ) : null}
    </div>
  );
}

function Preflight({ picture }: { picture: PreflightPicture }) {
  return (
    <div class="workbench-form-preflight">
      {picture.problems.map((problem) => (
        <p key={problem.problem} class="workbench-notice workbench-notice-error">
          <ProblemWords problem={problem} withField />
        </p>
      ))}
      <ul>
        {[...picture.lines, ...picture.forecast].map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </div>
  );
}

function LiveRun({ model, runId, snapshot }: { model: KernelModel; runId: string; snapshot: string }) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => showRun(element.current!, model, { run: runId, snapshot, height: HEIGHT_PX }), []);
  return <div class="workbench-form-live" ref={element} />;
}
