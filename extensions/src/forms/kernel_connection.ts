// The form's connection to the kernel: numbers messages, keeps the state, and matches answers to queries.
import type { FormRequest, Json, KernelMessage, Language, Mapping, PartName, Topic } from "./message_types";
import { batch } from "@preact/signals";
import type { Problem, Answer, FormState, Results } from "../types";
import { intoSlices } from "../slices";

/** The part of an anywidget's model that is used here. */
export interface Channel {
  send(content: unknown): void;
  on(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
}

/** The latest query of a topic. While it is working, the previous result stays. */
export interface QueryState<K extends Topic> {
  status: "working" | "done" | "failed";
  arguments: Mapping;
  progress: string;
  result: Results[K] | null;
  /** Those of the query that had the result. */
  resultArguments: Mapping;
  problem: Problem | null;
}

/** A connection once the kernel has told its first state. */
export type LoadedForm = KernelConnection & { readonly state: FormState };

export function isLoaded(form: KernelConnection): form is LoadedForm {
  return form.state !== null;
}

/** After this long without an answer, the form shows that the kernel is busy. */
const PATIENCE_MS = 1500;

export class KernelConnection {
  state: FormState | null = null;
  /** Whether a message has been unanswered for a long time. */
  isWaiting = false;
  /** Whether the kernel that held the experiment no longer exists. */
  isDisconnected = false;
  /** Texts that were typed and are not yet part of the state. */
  private unapplied: ReadonlySet<Language> = new Set();
  private queries: ReadonlyMap<Topic, QueryState<Topic>> = new Map();
  private readonly queryNumbers = new Map<Topic, number>();
  private number = 0;
  private answered = 0;
  private firstUnanswered = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly channel: Channel) {
    intoSlices(this, ["state", "isWaiting", "isDisconnected", "unapplied", "queries", "answered"]);
    channel.on("msg:custom", this.receive);
  }

  close(): void {
    clearTimeout(this.timer);
    this.channel.off("msg:custom", this.receive);
  }

  hello(parts: PartName[]): void {
    this.send({ type: "hello", parts });
  }

  disconnect(): void {
    this.isDisconnected = true;
  }

  /** Records whether a text has been typed that is not yet part of the state. */
  setUnapplied(language: Language, isUnapplied: boolean): void {
    if (this.unapplied.has(language) === isUnapplied) return;
    const others = [...this.unapplied].filter((one) => one !== language);
    this.unapplied = new Set(isUnapplied ? [...others, language] : others);
  }

  /** The text that differs from the experiment: not applied yet, or invalid. */
  get unappliedText(): Language | null {
    const languages: Language[] = ["yaml", "python"];
    return languages.find((one) => this.unapplied.has(one) || this.state?.[`${one}_problems`].length) ?? null;
  }

  /** Changes and removes settings in one step of undo. */
  edit(changes: [string, Json][], label: string, removals: string[] = []): number {
    return this.send({ type: "edit", changes, removals, label });
  }

  /** Sends a message; returns its number. */
  send(request: FormRequest): number {
    return this.post(request, this.nextNumber());
  }

  /** What the kernel works on, in its own words; empty if it has said nothing. */
  get progress(): string {
    return [...this.queries.values()].find((one) => one.status === "working" && one.progress)?.progress ?? "";
  }

  /** Returns whether the state includes the message with that number. */
  isAnswered(number: number): boolean {
    return number <= this.answered;
  }

  query(topic: Topic, given: Mapping = {}): void {
    const query = this.nextNumber();
    const before = this.answer(topic);
    this.queryNumbers.set(topic, query);
    this.keep(topic, {
      status: "working",
      arguments: given,
      progress: "",
      result: before?.result ?? null,
      resultArguments: before?.resultArguments ?? {},
      problem: null,
    });
    this.post({ type: "query", topic, query, arguments: given }, query);
  }

  /** Forgets the answer of a topic, so that an old one is not mistaken for a new one. */
  forget(topic: Topic): void {
    const queries = new Map(this.queries);
    queries.delete(topic);
    this.queries = queries;
  }

  private keep(topic: Topic, query: QueryState<Topic>): void {
    this.queries = new Map(this.queries).set(topic, query);
  }

  answer<K extends Topic>(topic: K): QueryState<K> | null {
    return (this.queries.get(topic) as QueryState<K> | undefined) ?? null;
  }

  /** Two views of one widget receive the same answers: the clock keeps their numbers in order. */
  private nextNumber(): number {
    this.number = Math.max(this.number + 1, Date.now());
    return this.number;
  }

  private post(request: FormRequest, number: number): number {
    try {
      this.channel.send({ ...request, number });
    } catch {
      this.disconnect(); // JupyterLab's channel throws after a restart
      return number;
    }
    if (request.type !== "query" && this.firstUnanswered <= this.answered) this.firstUnanswered = number;
    this.updateWaiting();
    return number;
  }

  private readonly receive = (content: unknown): void => {
    const message = content as Partial<KernelMessage> | null;
    if (message?.type === "state") this.receiveState(message as FormState);
    else if (message?.type === "answer") this.receiveAnswer(message as Answer);
  };

  private receiveState(state: FormState): void {
    if (this.state && state.revision < this.state.revision) return;
    batch(() => {
      this.state = state;
      this.answered = Math.max(this.answered, state.answered);
      this.updateWaiting();
    });
  }

  private receiveAnswer({ topic, query, status, progress, result, problem }: Answer): void {
    const latest = this.queryNumbers.get(topic);
    // An answer may come without a query, such as for a run started in another view; an older one is ignored.
    // The answer to a later query of another view is as good: both show one experiment.
    if (latest !== undefined && query < latest) return;
    const before = this.answer(topic);
    const fresh = (result as Results[Topic] | null | undefined) ?? null;
    this.keep(topic, {
      status,
      arguments: before?.arguments ?? {},
      progress: progress ?? "",
      result: fresh ?? before?.result ?? null,
      resultArguments: (fresh ? before?.arguments : before?.resultArguments) ?? {},
      problem: problem ?? null,
    });
  }

  private updateWaiting(): void {
    const isUnanswered = this.number > this.answered && this.firstUnanswered > this.answered;
    if (!isUnanswered) {
      clearTimeout(this.timer);
      this.timer = undefined;
      this.isWaiting = false;
    } else if (this.timer === undefined) {
      this.timer = setTimeout(() => {
        this.isWaiting = true;
      }, PATIENCE_MS);
    }
  }
}
