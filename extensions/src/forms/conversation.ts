// The form's side of the talk with the kernel: what was sent, what is known, which answers count.
import type { Json, Language, Mapping, PartAnswer, PartName, Pictures, Problem, FormState, Said, Slow, Told } from "./protocol";

/** As much of an anywidget's model as is used here. */
export interface Channel {
  send(content: unknown): void;
  on(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
}

/** What is known of a slow part. While it is asked again the last picture stays. */
export interface Held<K extends Slow> {
  status: "working" | "done" | "failed";
  /** What was asked for last. */
  asked: Mapping;
  progress: string;
  picture: Pictures[K] | null;
  problem: Problem | null;
}

/** After this long without an answer a person is told that the kernel is busy. */
const PATIENCE_MS = 1500;

export class Conversation {
  state: FormState | null = null;
  /** Whether something that was sent has waited for long. */
  isWaiting = false;
  /** Whether the kernel that held the experiment is gone: nothing that is said reaches anybody. */
  isCutOff = false;
  /** Texts in which something was typed that the state does not contain yet. */
  private readonly typedTexts = new Set<Language>();
  private readonly held = new Map<Slow, Held<Slow>>();
  private readonly questions = new Map<Slow, number>();
  private number = 0;
  private answered = 0;
  private firstOpen = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly channel: Channel,
    private readonly changed: () => void,
  ) {
    channel.on("msg:custom", this.take);
  }

  end(): void {
    clearTimeout(this.timer);
    this.channel.off("msg:custom", this.take);
  }

  hello(parts: PartName[]): void {
    this.say({ type: "hello", parts });
  }

  cutOff(): void {
    this.isCutOff = true;
    this.changed();
  }

  /** Notes whether a text holds something that the state does not contain yet. */
  noteText(language: Language, isTyped: boolean): void {
    if (this.typedTexts.has(language) === isTyped) return;
    if (isTyped) this.typedTexts.add(language);
    else this.typedTexts.delete(language);
    this.changed();
  }

  /** The text that says something else than the experiment: typed and not taken yet, or wrong. */
  get unappliedText(): Language | null {
    const languages: Language[] = ["yaml", "python"];
    return languages.find((one) => this.typedTexts.has(one) || this.state?.[`${one}_problem`]) ?? null;
  }

  /** Change values and take settings away, in one step that is undone as one. */
  edit(changes: [string, Json][], label: string, removals: string[] = []): number {
    return this.say({ type: "edit", changes, removals, label });
  }

  say(said: Said): number {
    return this.send(said, this.nextNumber());
  }

  /** Tell whether the state that is shown contains what was sent under that number. */
  isAnswered(number: number): boolean {
    return number <= this.answered;
  }

  ask(part: Slow, given: Mapping = {}): void {
    const question = this.nextNumber();
    this.questions.set(part, question);
    this.held.set(part, { status: "working", asked: given, progress: "", picture: this.part(part)?.picture ?? null, problem: null });
    this.send({ type: "ask", part, question, arguments: given }, question);
    this.changed();
  }

  /** Forgets what was told of a part, where an old answer would be taken for a new one. */
  forget(part: Slow): void {
    this.held.delete(part);
    this.changed();
  }

  part<K extends Slow>(name: K): Held<K> | null {
    return (this.held.get(name) as Held<K> | undefined) ?? null;
  }

  /** Two views of one widget hear the same answers: the clock keeps their numbers in the order of what was said. */
  private nextNumber(): number {
    this.number = Math.max(this.number + 1, Date.now());
    return this.number;
  }

  private send(said: Said, number: number): number {
    try {
      this.channel.send({ ...said, number });
    } catch {
      this.cutOff(); // what JupyterLab's channel does after a restart
      return number;
    }
    if (said.type !== "ask" && this.firstOpen <= this.answered) this.firstOpen = number;
    this.watch();
    return number;
  }

  private readonly take = (content: unknown): void => {
    const told = content as Partial<Told> | null;
    if (told?.type === "state") this.takeState(told as FormState);
    else if (told?.type === "part") this.takePart(told as PartAnswer);
  };

  private takeState(state: FormState): void {
    if (this.state && state.revision < this.state.revision) return;
    this.state = state;
    this.answered = Math.max(this.answered, state.answered ?? this.number);
    this.watch();
    this.changed();
  }

  private takePart({ name, question, status, progress, picture, problem }: PartAnswer): void {
    const asked = this.questions.get(name);
    // A part may be told unasked, such as a run that was started elsewhere; an old answer counts for nothing.
    // One that another view of the widget asked later is as good: both show one experiment.
    if (asked !== undefined && question < asked) return;
    const before = this.part(name);
    this.held.set(name, {
      status,
      asked: before?.asked ?? {},
      progress: progress ?? "",
      picture: (picture as Pictures[Slow] | null | undefined) ?? before?.picture ?? null,
      problem: problem ?? null,
    });
    this.changed();
  }

  private watch(): void {
    const isOpen = this.number > this.answered && this.firstOpen > this.answered;
    if (!isOpen) {
      clearTimeout(this.timer);
      this.timer = undefined;
      this.isWaiting = false;
    } else if (this.timer === undefined) {
      this.timer = setTimeout(() => {
        this.isWaiting = true;
        this.changed();
      }, PATIENCE_MS);
    }
  }
}
