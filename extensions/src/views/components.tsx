// Small pieces that several views are made of.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { formatPercent } from "../format";
import type { Problem, ActionSnippet } from "../types";

/** Reasons of complete trials, as `NO_RESULT` in `workbench/store/history/history.py`. */
const NO_RESULT = new Set(["infeasible", "target not reached"]);

export function StateMark({ state, reason }: { state: string; reason?: string | null }) {
  // Complete, and yet no result: it breaks a limit, or did not reach its target.
  const look = state === "complete" && NO_RESULT.has(reason ?? "") ? "no-result" : state;
  return (
    <span class={`workbench-state workbench-state-${look}`}>
      <span class="workbench-dot" aria-hidden="true" />
      {state}
      {reason && reason !== state ? <span class="workbench-reason">{reason}</span> : null}
    </span>
  );
}

/** What a person has read and put away, until the page is loaded again. */
const dismissed = new Set<string>();

interface NoticeProps {
  name: string;
  isError?: boolean;
  children: ComponentChildren;
}

/** A notice that can be put away. Its name tells it from others, also of other runs. */
export function Notice({ name, isError = false, children }: NoticeProps) {
  const [, redraw] = useState(0);
  if (dismissed.has(name)) return null;
  const dismiss = () => {
    dismissed.add(name);
    redraw((count) => count + 1);
  };
  return (
    <div class={`workbench-notice workbench-notice-closable${isError ? " workbench-notice-error" : ""}`}>
      <span>{children}</span>
      <button type="button" class="workbench-quiet" aria-label="Dismiss this notice" onClick={dismiss}>
        ✕
      </button>
    </div>
  );
}

interface ProgressBarProps {
  part: number | null;
  label: string;
  failed?: boolean;
}

export function ProgressBar({ part, label, failed = false }: ProgressBarProps) {
  const value = part === null ? {} : { "aria-valuenow": Math.round(part * 100) };
  return (
    <div
      class={`workbench-progress${part === null ? " workbench-progress-unknown" : ""}${failed ? " workbench-progress-failed" : ""}`}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      {...value}
    >
      <div style={{ inlineSize: `${(part ?? 0) * 100}%` }} />
    </div>
  );
}

export function Meter({ part, label, text }: { part: number | null; label: string; text?: string }) {
  const shown = text ?? formatPercent(part);
  return (
    <div class="workbench-meter">
      <span class="workbench-meter-label">{label}</span>
      <div
        class={`workbench-meter-bar${part !== null && part > 0.9 ? " workbench-meter-high" : ""}`}
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round((part ?? 0) * 100)}
        aria-valuetext={shown}
      >
        <div style={{ inlineSize: `${Math.min(1, part ?? 0) * 100}%` }} />
      </div>
      <span class="workbench-number">{shown}</span>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="workbench-empty">
      <p class="workbench-empty-title">{title}</p>
      {children}
    </div>
  );
}

/** Text to copy: a command, a piece of Python. */
export function Code({ text, label }: { text: string; label: string }) {
  const [copied, setCopied] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    timer.current = setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="workbench-code">
      <pre tabIndex={0} role="group" aria-label={label} dir="ltr">
        {text}
      </pre>
      <button type="button" onClick={copy} aria-label={`Copy ${label}`}>
        <span aria-live="polite">{copied ? "Copied" : "Copy"}</span>
      </button>
    </div>
  );
}

/** The clipboard needs a secure page; a notebook server on plain HTTP is none. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

/** The command and the Python that do the same as something on the screen. */
export function TheSame({ snippet, name }: { snippet: ActionSnippet; name: string }) {
  return (
    <>
      <Code label={`command: ${name}`} text={snippet.command} />
      <Code label={`Python: ${name}`} text={snippet.python} />
    </>
  );
}

export function ProblemNotice({ problem }: { problem: Problem | null }) {
  return (
    <div role="alert">
      {problem ? (
        <div class="workbench-notice workbench-notice-error">
          <p>
            {problem.field ? <code>{problem.field}: </code> : null}
            {problem.problem}
          </p>
          {problem.allowed ? <p>Allowed: {problem.allowed}</p> : null}
          {problem.next_step ? <p>{problem.next_step}</p> : null}
        </div>
      ) : null}
    </div>
  );
}

interface DialogProps {
  title: string;
  onClose(): void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      class="workbench-dialog"
      aria-labelledby={id}
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && dialog.current?.close()}
    >
      <div class="workbench-dialog-body">
        <div class="workbench-dialog-head">
          <h2 id={id}>{title}</h2>
          <button type="button" class="workbench-quiet" aria-label="Close" onClick={() => dialog.current?.close()}>
            ✕
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}

interface FieldProps {
  label: string;
  hint?: string;
  /** What is wrong with what was typed. */
  problem?: Problem | null;
  children: (id: string) => ComponentChildren;
}

export function Field({ label, hint, problem, children }: FieldProps) {
  const id = useId();
  return (
    <div class="workbench-field">
      <label for={id}>{label}</label>
      {children(id)}
      {hint ? <span class="workbench-hint">{hint}</span> : null}
      {problem === undefined ? null : <ProblemNotice problem={problem && { ...problem, field: null }} />}
    </div>
  );
}

/** A field that tells what was typed when somebody has paused typing. */
export function Search(props: { value: string; label: string; title?: string; onInput(text: string): void }) {
  const { value, label, title } = props;
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const [text, setText] = useState(value);
  // The function of the last rendering: an older one would undo what was chosen during the pause.
  const onInput = useRef(props.onInput);
  onInput.current = props.onInput;
  useEffect(() => setText(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (
    <input
      class="workbench-search"
      type="search"
      dir="auto"
      placeholder={label}
      aria-label={label}
      title={title}
      maxLength={200}
      value={text}
      onInput={(event) => {
        const typed = event.currentTarget.value;
        setText(typed);
        clearTimeout(timer.current);
        timer.current = setTimeout(() => onInput.current(typed), 200);
      }}
    />
  );
}

/** A choice of states: none chosen means all. */
export function StateFilter<S extends string>(props: {
  states: readonly S[];
  chosen: readonly S[];
  label: string;
  onChange(chosen: S[]): void;
}) {
  const { states, chosen, label, onChange } = props;
  return (
    <select
      aria-label={label}
      value={chosen.length === 1 ? chosen[0] : ""}
      onChange={(event) => onChange(event.currentTarget.value ? [event.currentTarget.value as S] : [])}
    >
      <option value="">All states</option>
      {states.map((state) => (
        <option key={state} value={state}>
          {state}
        </option>
      ))}
    </select>
  );
}

/** Takes the place of rows of a table that are not on the screen. */
export function Spacer({ px, columns }: { px: number; columns: number }) {
  if (!px) return null;
  return (
    <tr aria-hidden="true" class="workbench-spacer">
      <td colSpan={columns} style={{ blockSize: `${px}px` }} />
    </tr>
  );
}
