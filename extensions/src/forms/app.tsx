// The form: one part or all of them as tabs, the text beside it, and what holds for all: files, undo, identity.
import { useState } from "preact/hooks";
import type { KernelModel } from "../kernel_socket";
import { AdvicePart } from "./advice_part";
import type { Conversation } from "./conversation";
import { DataPart } from "./data_part";
import { Files } from "./files";
import { ModelPart, useVerdict, type Verdict } from "./model_part";
import { homeless, partOf, problemsOf } from "./problems";
import type { PartName } from "./protocol";
import { ResultPart } from "./result_part";
import { RunPart } from "./run_part";
import { SpacePart } from "./space_part";
import { Tabs } from "./tabs";
import { LANGUAGE_NAMES, Texts } from "./texts";
import { problemsAt, ProblemsUnder, ProblemWords, TextInput, useOwnId, useTyped, type FormProps } from "./typed";

export const PART_TITLES: Record<PartName, string> = {
  model: "Model",
  data: "Data",
  space: "Search space",
  advice: "Advice",
  run: "Run",
  result: "Result",
};

const CUT_OFF = "Not connected any more: the kernel that held this experiment was restarted or ended. Run the cell again.";

export interface AppProps {
  form: Conversation;
  model: KernelModel;
  parts: PartName[];
  runId: string;
  themeName: string;
  /** Another object at every drawing, because what is shown changes in place. */
  now: object;
}

export function App(props: AppProps) {
  const { form, parts } = props;
  const [chosen, setChosen] = useState<PartName>(parts[0]);
  const [hasText, setHasText] = useState(true);
  const { state } = form;
  const part = parts.includes(chosen) ? chosen : parts[0];
  const verdict = useVerdict(form, parts, part === "model");
  if (!state) {
    return (
      <p class="workbench-form-empty" role="status">
        {form.isCutOff ? CUT_OFF : form.isWaiting ? "The kernel does not answer. A cell that runs keeps it busy; after a restart, run the cell again." : "Asking the kernel …"}
      </p>
    );
  }
  const isWhole = parts.length > 1;
  const offersText = isWhole || part === "space";
  return (
    <>
      <Bar form={form} verdict={verdict} onPart={parts.length > 1 ? setChosen : undefined} isWhole={isWhole} text={offersText ? { isShown: hasText, show: setHasText } : null} />
      <Notes form={form} />
      <div class={offersText && hasText ? "workbench-form-beside" : ""}>
        <Part {...props} part={part} verdict={verdict} onPart={setChosen} isWhole={isWhole} />
        {offersText && hasText ? <Texts form={form} /> : null}
      </div>
    </>
  );
}

interface BarProps extends FormProps {
  isWhole: boolean;
  verdict: Verdict;
  onPart?(part: PartName): void;
  text: { isShown: boolean; show(isShown: boolean): void } | null;
}

function Bar({ form, isWhole, verdict, onPart, text }: BarProps) {
  const state = form.state!;
  const undoWords = state.undo_label ? `Undo: ${state.undo_label}` : "Undo";
  return (
    <div class="workbench-bar workbench-form-head">
      {isWhole ? <NameField form={form} /> : null}
      <button type="button" title={undoWords} aria-label={undoWords} disabled={!state.can_undo} onClick={() => form.say({ type: "undo" })}>
        ↶ Undo
      </button>
      <button type="button" disabled={!state.can_redo} onClick={() => form.say({ type: "redo" })}>
        ↷ Redo
      </button>
      {isWhole ? <Files form={form} /> : null}
      {text ? (
        <button type="button" aria-pressed={text.isShown} onClick={() => text.show(!text.isShown)}>
          Text
        </button>
      ) : null}
      <span class="workbench-gap" />
      <Identity form={form} verdict={verdict} onPart={onPart} />
    </div>
  );
}

function NameField({ form }: FormProps) {
  const id = useOwnId();
  const { name } = form.state!.document;
  const typed = useTyped(form, typeof name === "string" ? name : "", (text) =>
    text.trim() ? form.edit([["name", text.trim()]], "Name") : form.say({ type: "remove", path: "name" }),
  );
  const problems = problemsAt(form, "name");
  return (
    <div class="workbench-form-title">
      <TextInput typed={typed} id={id} label="Name of the experiment" placeholder="experiment" isWrong={problems.length > 0} describedBy={`${id}-problem`} />
      <ProblemsUnder id={`${id}-problem`} problems={problems} />
    </div>
  );
}

interface IdentityProps extends FormProps {
  verdict: Verdict;
  onPart?(part: PartName): void;
}

/** Whether the experiment is right, and which one it is: the hash that every face of it shares. */
function Identity({ form, verdict, onPart }: IdentityProps) {
  const { problems, hash, saved_path } = form.state!;
  const text = form.unappliedText;
  return (
    <span class="workbench-form-identity" role="status">
      {form.isWaiting && !form.isCutOff ? (
        <span class="workbench-form-busy">The kernel is busy; what you change is taken when its cell ends.</span>
      ) : null}
      {text ? <span class="workbench-form-busy">{LANGUAGE_NAMES[text]} not applied</span> : null}
      {problems.length ? (
        <button type="button" class="workbench-link workbench-form-count" onClick={() => onPart?.(partOf(problems[0].field))}>
          {problems.length === 1 ? "1 problem" : `${problems.length} problems`}
        </button>
      ) : null}
      {hash ? (
        <span title={`SHA-256 ${hash}${saved_path ? `, saved as ${saved_path}` : ""}`}>
          {form.isCutOff || text ? null : <Readiness verdict={verdict} onPart={onPart} />} <code>{hash.slice(0, 8)}</code>
        </span>
      ) : null}
    </span>
  );
}

function Readiness({ verdict, onPart }: Omit<IdentityProps, "form">) {
  switch (verdict) {
    case "built":
      return <span class="workbench-form-right">✓ ready</span>;
    case "refused":
      return (
        <button type="button" class="workbench-link workbench-form-count" onClick={() => onPart?.("model")}>
          not ready: building the model failed
        </button>
      );
    case "asked":
      return <span class="workbench-muted">building the model …</span>;
    case "unknown":
      return <span class="workbench-muted">no problem found</span>;
  }
}

function Notes({ form }: FormProps) {
  const file = form.part("file");
  return (
    <>
      <div role="alert">{form.isCutOff ? <p class="workbench-notice workbench-notice-error">{CUT_OFF}</p> : null}</div>
      {form.state!.notes?.map((note) => (
        <p class="workbench-notice" key={note}>
          {note}
        </p>
      ))}
      <div role="alert">
        {file?.status === "failed" && file.problem ? (
          <p class="workbench-notice workbench-notice-error">
            <ProblemWords problem={file.problem} withField />
          </p>
        ) : null}
      </div>
    </>
  );
}

interface PartProps extends AppProps {
  part: PartName;
  verdict: Verdict;
  isWhole: boolean;
  onPart(part: PartName): void;
}

function Part(props: PartProps) {
  const { form, parts, part, isWhole, onPart } = props;
  const id = useOwnId();
  const body = (
    <>
      {homeless(form.state!, part).map((problem) => (
        <p class="workbench-notice workbench-notice-error" key={`${problem.field}${problem.problem}`}>
          <ProblemWords problem={problem} withField />
        </p>
      ))}
      <Body {...props} />
    </>
  );
  if (!isWhole) {
    return (
      <div class="workbench-form-part" role="group" aria-label={PART_TITLES[part]}>
        {body}
      </div>
    );
  }
  const tabs = parts.map((name) => ({ name, title: PART_TITLES[name], num_problems: problemsOf(form.state!, name).length }));
  return (
    <div class="workbench-form-main">
      <Tabs id={id} label="Parts of the experiment" tabs={tabs} chosen={part} onChoose={onPart} />
      <div class="workbench-form-part" role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${part}`} key={part}>
        {body}
      </div>
    </div>
  );
}

function Body({ form, model, part, parts, verdict, runId, themeName, onPart }: PartProps) {
  const goTo = (name: PartName) => (parts.includes(name) ? onPart(name) : undefined);
  switch (part) {
    case "model":
      return <ModelPart form={form} onSearch={() => goTo("space")} />;
    case "data":
      return <DataPart form={form} />;
    case "space":
      return <SpacePart form={form} />;
    case "advice":
      return <AdvicePart form={form} themeName={themeName} />;
    case "run":
      return <RunPart form={form} model={model} verdict={verdict} runId={runId} />;
    case "result":
      return <ResultPart form={form} runId={runId} onOtherData={() => goTo("data")} />;
  }
}
