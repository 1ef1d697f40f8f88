// Fields to type in, which keep what is typed until the kernel has answered, and say what is wrong below.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Conversation } from "./conversation";
import type { Problem } from "./protocol";

export interface FormProps {
  form: Conversation;
}

/** A name that nothing else on the page has: Preact's own begin anew in each form of a notebook. */
export function useOwnId(): string {
  const [id] = useState(() => `workbench-${Array.from(crypto.getRandomValues(new Uint32Array(2))).join("-")}`);
  return id;
}

export interface Typed {
  text: string;
  /** Whether it is typed and the kernel has not answered. */
  isOpen: boolean;
  /** Takes what is typed and sends nothing yet. */
  type(text: string): void;
  /** Sends what was typed, if it was. */
  commit(): void;
  /** Takes and sends at once. */
  choose(text: string): void;
}

/**
 * The text of a field: what the kernel has, or what is typed and not yet answered. Where it is kept, the
 * answer does not replace it either: nobody's text is put into another form while they write.
 */
export function useTyped(form: Conversation, shown: string, send: (text: string) => number | null, isKept = false): Typed {
  const [typed, setTyped] = useState<string | null>(null);
  // Beside what is drawn: leaving a field and pressing Enter may both come before the next drawing.
  const sent = useRef<number | null>(null);
  const isReleased = typed !== null && sent.current !== null && !isKept && form.isAnswered(sent.current);
  if (isReleased) {
    sent.current = null;
    setTyped(null);
  }
  const pass = (text: string): void => {
    sent.current = text === shown ? null : send(text);
    if (sent.current === null && !isKept) setTyped(null);
  };
  return {
    text: isReleased ? shown : (typed ?? shown),
    isOpen: typed !== null && typed !== shown && !isReleased && !(sent.current !== null && form.isAnswered(sent.current)),
    type: (text) => {
      sent.current = null;
      setTyped(text);
    },
    commit: () => {
      if (typed !== null && sent.current === null) pass(typed);
    },
    choose: (text) => {
      setTyped(text);
      pass(text);
    },
  };
}

interface TextInputProps {
  typed: Typed;
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

export function TextInput({ typed, id, label, describedBy, isWrong, placeholder, list, isNumeric, ...rest }: TextInputProps) {
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
      onBlur={() => typed.commit()}
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

/** What is wrong, in the words of the error: what, what is allowed, and what to do. */
export function ProblemWords({ problem, withField = false }: { problem: Problem; withField?: boolean }) {
  return (
    <span class="workbench-form-problem">
      {withField && problem.field ? <code>{problem.field}: </code> : null}
      {capitalised(ended(problem.problem))}
      {problem.allowed ? ` Allowed: ${ended(problem.allowed)}` : ""}
      {problem.next_step ? ` ${problem.next_step}` : ""}
    </span>
  );
}

export function capitalised(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function ended(text: string): string {
  const trimmed = text.trim();
  return /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}

/** A sentence in which `names` are written as code. */
export function Sentence({ text }: { text: string }) {
  return <>{text.split("`").map((part, at) => (at % 2 ? <code key={at}>{part}</code> : part))}</>;
}

/** Where problems of a field appear; always there, so that a reader of the screen hears when one comes. */
export function ProblemsUnder({ id, problems, label }: { id?: string; problems: Problem[]; label?: string }) {
  return (
    <div id={id} class="workbench-form-under" role="status">
      {problems.map((problem) => (
        <ProblemWords key={problem.problem} problem={label ? { ...problem, problem: `${label}: ${problem.problem}` } : problem} />
      ))}
    </div>
  );
}

export function problemsAt(form: Conversation, path: string): Problem[] {
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
  /** Where its problems are said, if that is not directly below. */
  problemId?: string;
}

/** An input for one path that is generated from no type: a bound of a range, a list of choices. */
export function PathInput({ form, path, label, shown, send, isLabelSeen = true, problemId, ...rest }: PathInputProps) {
  const id = useOwnId();
  const typed = useTyped(form, shown, send);
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
      {problemId ? null : <ProblemsUnder id={`${id}-problem`} problems={problems} />}
    </div>
  );
}

/** A group with a heading that a reader of the screen can jump to. */
export function Group({ title, level = 3, children, aside }: { title: string; level?: 2 | 3; children: ComponentChildren; aside?: ComponentChildren }) {
  const id = useOwnId();
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
 * Calls `ask` where what the answer depends on has changed, when changes have paused; also where all was changed
 * back meanwhile, as the kernel may have answered in between. Tells whether it was asked for what is shown.
 */
export function useAsked(key: string | null, ask: () => unknown, pause_ms = 250): boolean {
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
