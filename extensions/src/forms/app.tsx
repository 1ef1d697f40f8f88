// The form: one part, or all of them as tabs, with the text beside it and a bar for files, undo and identity.
import { useRef, useState } from "preact/hooks";
import type { KernelModel } from "../kernel_socket";
import { AdvicePart } from "./advice_part";
import { FirstContact } from "./first_contact";
import { isLoaded, type KernelConnection, type LoadedForm } from "./kernel_connection";
import { DataPart } from "./data_part";
import { Files } from "./files";
import { ModelPart, useModelCheck, type ModelCheck } from "./model_part";
import { problemsWithoutField, partOf, problemsOf } from "./problems";
import type { PartName } from "./message_types";
import { ResultPart } from "./result_part";
import { LiveRun, RunPart, StartButton, usePreflight } from "./run_part";
import { SpacePart } from "./space_part";
import { Tabs } from "./tabs";
import { LANGUAGE_NAMES, Texts } from "./text_editors";
import {
  problemsAt,
  FieldProblems,
  ProblemText,
  TextInput,
  useUniqueId,
  useTextField,
  type FormProps,
} from "./text_field";

export const PART_TITLES: Record<PartName, string> = {
  model: "Model",
  data: "Data",
  space: "Search space",
  advice: "Advice",
  run: "Run",
  result: "Result",
};

const DISCONNECTED =
  "No longer connected: the kernel of this experiment was restarted or shut down. Run the cell again.";

export interface AppProps {
  form: KernelConnection;
  model: KernelModel;
  parts: PartName[];
  /** What the form does not decide: the run that the kernel knows, and the theme. */
  around: { readonly runId: string; readonly themeName: string };
}

export function App(props: AppProps) {
  const { form, parts, around } = props;
  const runId = form.answer("start")?.result?.run_id ?? around.runId;
  const [chosen, setChosen] = useState<PartName>(parts[0]);
  const [hasText, setHasText] = useState(true);
  // A run comes into view once: not if it was there before, and not again when its part is opened.
  const seenRun = useRef(runId);
  const part = parts.includes(chosen) ? chosen : parts[0];
  const modelCheck = useModelCheck(form, parts, part === "model");
  usePreflight(form, parts, part === "run");
  if (!isLoaded(form)) {
    return (
      <p class="workbench-form-empty" role="status">
        {form.isDisconnected
          ? DISCONNECTED
          : form.isWaiting
            ? "The kernel is busy: it executes another cell, or loads libraries. After a restart, run the cell again."
            : "Waiting for the kernel …"}
      </p>
    );
  }
  const isWhole = parts.length > 1;
  const offersText = isWhole || part === "space";
  const { isDisconnected } = form;
  return (
    <>
      <Bar
        form={form}
        modelCheck={modelCheck}
        onPart={parts.length > 1 ? setChosen : undefined}
        isWhole={isWhole}
        canStart={parts.includes("run")}
        text={offersText ? { isShown: hasText, show: setHasText } : null}
      />
      <Notes form={form} />
      {isWhole && !runId ? <FirstContact form={form} onRun={() => setChosen("run")} /> : null}
      <div class={offersText && hasText ? "workbench-form-beside" : ""} inert={isDisconnected}>
        <Part
          {...props}
          form={form}
          runId={isDisconnected ? "" : runId}
          part={part}
          modelCheck={modelCheck}
          onPart={setChosen}
          isWhole={isWhole}
        />
        {offersText && hasText ? <Texts form={form} /> : null}
      </div>
      {runId && (part === "run" || isDisconnected) ? (
        <LiveRun
          key={runId}
          model={props.model}
          runId={runId}
          snapshot={form.answer("start")?.result?.snapshot ?? ""}
          seenRun={seenRun}
        />
      ) : null}
    </>
  );
}

interface BarProps extends FormProps {
  isWhole: boolean;
  canStart: boolean;
  modelCheck: ModelCheck;
  onPart?(part: PartName): void;
  text: { isShown: boolean; show(isShown: boolean): void } | null;
}

/** It stays in sight: what the form is about, whether it can be started, how long that takes, and the start itself. */
function Bar({ form, isWhole, canStart, modelCheck, onPart, text }: BarProps) {
  const state = form.state;
  const undoWords = state.undo_label ? `Undo: ${state.undo_label}` : "Undo";
  return (
    <div class="workbench-bar workbench-form-head" inert={form.isDisconnected}>
      {isWhole ? <NameField form={form} /> : null}
      <button
        type="button"
        title={undoWords}
        aria-label={undoWords}
        disabled={!state.can_undo}
        onClick={() => form.send({ type: "undo" })}
      >
        ↶<span class="workbench-form-word"> Undo</span>
      </button>
      <button type="button" aria-label="Redo" disabled={!state.can_redo} onClick={() => form.send({ type: "redo" })}>
        ↷<span class="workbench-form-word"> Redo</span>
      </button>
      {isWhole ? <Files form={form} /> : null}
      {text ? (
        <button type="button" aria-pressed={text.isShown} onClick={() => text.show(!text.isShown)}>
          Text
        </button>
      ) : null}
      <span class="workbench-gap" />
      <Identity form={form} modelCheck={modelCheck} onPart={onPart} />
      {canStart ? <StartButton form={form} modelCheck={modelCheck} onStart={() => onPart?.("run")} /> : null}
    </div>
  );
}

function NameField({ form }: FormProps) {
  const id = useUniqueId();
  const { name } = form.state.document;
  const typed = useTextField(form, typeof name === "string" ? name : "", (text) =>
    text.trim() ? form.edit([["name", text.trim()]], "Name") : form.send({ type: "remove", path: "name" }),
  );
  const problems = problemsAt(form, "name");
  return (
    <div class="workbench-form-title">
      <TextInput
        typed={typed}
        id={id}
        label="Name of the experiment"
        placeholder="experiment"
        isWrong={problems.length > 0}
        describedBy={`${id}-problem`}
      />
      <FieldProblems id={`${id}-problem`} problems={problems} />
    </div>
  );
}

interface IdentityProps extends FormProps {
  modelCheck: ModelCheck;
  onPart?(part: PartName): void;
}

/** Whether the experiment is valid, and its hash, which is the same in every interface. */
function Identity({ form, modelCheck, onPart }: IdentityProps) {
  const { problems, hash, saved_path } = form.state;
  const text = form.unappliedText;
  return (
    <span class="workbench-form-identity" role="status">
      {form.isWaiting && !form.isDisconnected ? (
        <span class="workbench-form-busy">
          The kernel is busy{form.progress ? `: ${form.progress}` : ""}; your changes take effect afterwards.
        </span>
      ) : null}
      {text ? <span class="workbench-form-busy">{LANGUAGE_NAMES[text]} not applied</span> : null}
      {problems.length ? (
        <button
          type="button"
          class="workbench-link workbench-form-count"
          onClick={() => onPart?.(partOf(problems[0].field))}
        >
          {problems.length === 1 ? "1 problem" : `${problems.length} problems`}
        </button>
      ) : null}
      {hash ? (
        <span title={`SHA-256 ${hash}${saved_path ? `, saved as ${saved_path}` : ""}`}>
          {form.isDisconnected || text ? null : <Readiness modelCheck={modelCheck} onPart={onPart} />}{" "}
          <code>{hash.slice(0, 8)}</code>
        </span>
      ) : null}
    </span>
  );
}

function Readiness({ modelCheck, onPart }: Omit<IdentityProps, "form">) {
  switch (modelCheck) {
    case "built":
      return <span class="workbench-form-right">✓ ready</span>;
    case "failed":
      return (
        <button type="button" class="workbench-link workbench-form-count" onClick={() => onPart?.("model")}>
          not ready: building the model failed
        </button>
      );
    case "building":
      return <span class="workbench-muted">building the model …</span>;
    case "unknown":
      return <span class="workbench-muted">no problems found</span>;
  }
}

function Notes({ form }: FormProps) {
  const file = form.answer("file");
  return (
    <>
      <div role="alert">
        {form.isDisconnected ? <p class="workbench-notice workbench-notice-error">{DISCONNECTED}</p> : null}
      </div>
      {form.state.notes?.map((note) => (
        <p class="workbench-notice" key={note}>
          {note}
        </p>
      ))}
      <div role="alert">
        {file?.status === "failed" && file.problem ? (
          <p class="workbench-notice workbench-notice-error">
            <ProblemText problem={file.problem} withField />
          </p>
        ) : null}
      </div>
    </>
  );
}

interface PartProps extends AppProps {
  form: LoadedForm;
  part: PartName;
  runId: string;
  modelCheck: ModelCheck;
  isWhole: boolean;
  onPart(part: PartName): void;
}

function Part(props: PartProps) {
  const { form, parts, part, isWhole, onPart } = props;
  const id = useUniqueId();
  const body = (
    <>
      {problemsWithoutField(form.state, part).map((problem) => (
        <p class="workbench-notice workbench-notice-error" key={`${problem.field}${problem.problem}`}>
          <ProblemText problem={problem} withField />
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
  const tabs = parts.map((name) => ({
    name,
    title: PART_TITLES[name],
    num_problems: problemsOf(form.state, name).length,
  }));
  return (
    <div class="workbench-form-main">
      <Tabs id={id} label="Parts of the experiment" tabs={tabs} chosen={part} onChoose={onPart} />
      <div class="workbench-form-part" role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${part}`} key={part}>
        {body}
      </div>
    </div>
  );
}

function Body({ form, part, parts, runId, around, onPart }: PartProps) {
  const goTo = (name: PartName) => (parts.includes(name) ? onPart(name) : undefined);
  switch (part) {
    case "model":
      return <ModelPart form={form} onSearch={() => goTo("space")} />;
    case "data":
      return <DataPart form={form} />;
    case "space":
      return <SpacePart form={form} />;
    case "advice":
      return (
        <AdvicePart
          form={form}
          themeName={around.themeName}
          onStart={parts.includes("run") ? () => onPart("run") : undefined}
        />
      );
    case "run":
      return <RunPart form={form} />;
    case "result":
      return <ResultPart form={form} runId={runId} onOtherData={() => goTo("data")} />;
  }
}
