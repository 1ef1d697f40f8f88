// Text inputs that keep typed text until the kernel has acknowledged it, with problems below them.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { KernelConnection, LoadedForm } from "./kernel_connection";
import type { Problem } from "../types";

/** After a pause of this length what is typed counts, where it counts before the field is left. */
const PAUSE_MS = 700;

export interface FormProps {
  form: LoadedForm;
}

/** The name of a field: the end of its path. */
export function lastNameOf(path: string): string {
  return path.slice(path.lastIndexOf(".") + 1);
}

/** An id that is unique on the page; Preact's own ids repeat between the forms of a notebook. */
export function useUniqueId(): string {
  const [id] = useState(() => `workbench-${Array.from(crypto.getRandomValues(new Uint32Array(2))).join("-")}`);
  return id;
}

export interface TextFieldState {
  text: string;
  /** Whether typed text has not been acknowledged by the kernel. */
  isOpen: boolean;
  /** Keeps typed text without sending it. */
  type(text: string): void;
  /** Sends typed text, if there is any. */
  commit(): void;
  /** Keeps and sends text at once. */
  choose(text: string): void;
  enter(): void;
  /** Sends typed text, as the field is left. */
  leave(): void;
}

/**
 * The text of a field: the kernel's value, or typed text that is not acknowledged yet. With `countsInPauses`, text is
 * sent when typing pauses, too, and no acknowledgement replaces it in a field that has the focus, so that it is not
 * reformatted while the user types.
 */
export function useTextField(
  form: KernelConnection,
  shown: string,
  send: (text: string) => number | null,
  countsInPauses = false,
): TextFieldState {
  const [typed, setTyped] = useState<string | null>(null);
  const [hasFocus, setFocus] = useState(false);
  const isKept = countsInPauses && hasFocus;
  const timer = useRef<ReturnType<typeof setTimeout>>();
  // A ref, because blur and Enter may both happen before the next rendering.
  const sent = useRef<number | null>(null);
  const isTaken = sent.current === null ? typed === shown : form.isAnswered(sent.current);
  const isReleased = typed !== null && !isKept && isTaken;
  if (isReleased) {
    sent.current = null;
    setTyped(null);
  }
  const pass = (text: string): void => {
    sent.current = text === shown ? null : send(text);
    if (sent.current === null && !isKept) setTyped(null);
  };
  const commit = (): void => {
    if (typed !== null && sent.current === null) pass(typed);
  };
  const latest = useRef(commit);
  latest.current = commit;
  useEffect(() => () => clearTimeout(timer.current), []);
  return {
    text: isReleased ? shown : (typed ?? shown),
    isOpen:
      typed !== null && typed !== shown && !isReleased && !(sent.current !== null && form.isAnswered(sent.current)),
    type: (text) => {
      sent.current = null;
      setTyped(text);
      clearTimeout(timer.current);
      if (countsInPauses) timer.current = setTimeout(() => latest.current(), PAUSE_MS);
    },
    commit,
    choose: (text) => {
      setTyped(text);
      pass(text);
    },
    enter: () => setFocus(true),
    leave: () => {
      commit();
      setFocus(false);
    },
  };
}

interface TextInputProps {
  typed: TextFieldState;
  id?: string;
  label?: string;
  describedBy?: string;
  isWrong?: boolean;
  placeholder?: string;
  list?: string;
  isNumeric?: boolean;
  class?: string;
  onKeyDown?(event: KeyboardEvent): void;
}

export function TextInput({
  typed,
  id,
  label,
  describedBy,
  isWrong,
  placeholder,
  list,
  isNumeric,
  ...rest
}: TextInputProps) {
  return (
    <input
      {...rest}
      id={id}
      aria-label={label}
      aria-describedby={describedBy}
      aria-invalid={isWrong || undefined}
      list={list}
      placeholder={placeholder}
      dir={isNumeric ? "ltr" : "auto"}
      inputMode={isNumeric ? "decimal" : undefined}
      autocomplete="off"
      spellcheck={false}
      value={typed.text}
      onInput={(event) => typed.type(event.currentTarget.value)}
      onFocus={typed.enter}
      onBlur={typed.leave}
      onKeyDown={(event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          typed.commit();
        }
        rest.onKeyDown?.(event);
      }}
    />
  );
}

/** An error: the problem, what is allowed, and the next step. */
export function ProblemText({ problem, withField = false }: { problem: Problem; withField?: boolean }) {
  return (
    <span class="workbench-form-problem">
      {withField && problem.field ? <code>{problem.field}: </code> : null}
      {capitalized(asSentence(problem.problem))}
      {problem.allowed ? ` Allowed: ${asSentence(problem.allowed)}` : ""}
      {problem.next_step ? ` ${problem.next_step}` : ""}
    </span>
  );
}

/** A text as it begins a sentence; a name or a path that it begins with stays as it is. */
export function capitalized(text: string): string {
  return /^[a-z]+(?=[\s,;]|[.!?]?$)/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

export function asSentence(text: string): string {
  const trimmed = text.trim();
  return /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

/** Text in which words in backticks are shown as code. */
export function Sentence({ text }: { text: string }) {
  return <>{text.split("`").map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part))}</>;
}

/** The problems of a field; always rendered, so that screen readers announce new ones. */
export function FieldProblems({ id, problems, label }: { id?: string; problems: Problem[]; label?: string }) {
  return (
    <div id={id} class="workbench-form-under" role="status">
      {problems.map((problem) => (
        <ProblemText
          key={problem.problem}
          problem={label ? { ...problem, problem: `${label}: ${problem.problem}` } : problem}
        />
      ))}
    </div>
  );
}

export function problemsAt(form: KernelConnection, path: string): Problem[] {
  return form.state?.problems.filter((one) => one.field === path) ?? [];
}

interface PathInputProps extends FormProps {
  path: string;
  label: string;
  shown: string;
  /** Changes the experiment; returns what `form.edit` returns. */
  send(text: string): number | null;
  isNumeric?: boolean;
  placeholder?: string;
  list?: string;
  isLabelSeen?: boolean;
  class?: string;
  /** The element that shows its problems, if that is not directly below. */
  problemId?: string;
}

/** An input for a path without a generated field: a bound of a range, a list of choices. */
export function PathInput({ form, path, label, shown, send, isLabelSeen = true, problemId, ...rest }: PathInputProps) {
  const id = useUniqueId();
  const typed = useTextField(form, shown, send);
  const problems = problemsAt(form, path);
  return (
    <div class="workbench-form-input">
      {isLabelSeen ? <label for={id}>{label}</label> : null}
      <TextInput
        typed={typed}
        id={id}
        label={isLabelSeen ? undefined : label}
        describedBy={problemId ?? `${id}-problem`}
        isWrong={problems.length > 0}
        {...rest}
      />
      {problemId ? null : <FieldProblems id={`${id}-problem`} problems={problems} />}
    </div>
  );
}

/** A group with a heading, which screen readers can navigate to. */
export function Group({
  title,
  level = 3,
  children,
  aside,
}: {
  title: string;
  level?: 2 | 3;
  children: ComponentChildren;
  aside?: ComponentChildren;
}) {
  const id = useUniqueId();
  const Heading = level === 2 ? "h2" : "h3";
  return (
    <div class="workbench-form-group" role="group" aria-labelledby={id}>
      <div class="workbench-form-group-head">
        <Heading id={id}>{title}</Heading>
        {aside}
      </div>
      {children}
    </div>
  );
}

/**
 * Calls `ask` when `key` has changed and changes have paused, also if it changed back meanwhile, because the kernel
 * may have answered in between. Returns whether the query for the current key has been sent.
 */
export function useQuery(key: string | null, ask: () => unknown, pause_ms = 250): boolean {
  const asked = useRef<string | null>(null);
  useEffect(() => {
    asked.current = null;
    if (key === null) return;
    const timer = setTimeout(() => {
      asked.current = key;
      ask();
    }, pause_ms);
    return () => clearTimeout(timer);
  }, [key]);
  return key !== null && asked.current === key;
}
