// The kernel's side of a form: records what it is sent, and answers when a test says so.
import { act } from "preact/test-utils";
import { isLoaded, KernelConnection, type Channel } from "../src/forms/kernel_connection";
import type { FormField, FormState, Results, Section, SearchRow } from "../src/types";

export interface Sent {
  number: number;
  type: string;
  query: number;
  topic?: string;
  [name: string]: unknown;
}

export class FakeKernel implements Channel {
  readonly sent: Sent[] = [];
  private listener: ((content: unknown, buffers: DataView[]) => void) | null = null;

  send(content: unknown): void {
    this.sent.push(content as Sent);
  }

  on(_name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void {
    this.listener = listener;
  }

  off(): void {
    this.listener = null;
  }

  /** Sends a message, and draws what it changes at once. */
  emit(content: unknown): void {
    void act(() => this.listener?.(content, []));
  }

  /** Behaves like a channel after a restart of the kernel. */
  disconnect(): void {
    this.send = () => {
      throw new Error("Cannot send");
    };
  }

  get last(): Sent {
    return this.sent.at(-1)!;
  }

  /** Messages without their numbers. */
  messages(type: string): Record<string, unknown>[] {
    return this.sent.filter((one) => one.type === type).map(({ number: _, ...rest }) => rest);
  }
}

export function buildRow(known: Partial<SearchRow>): SearchRow {
  return {
    name: "lr",
    kind: "float",
    low: null,
    high: null,
    step: null,
    log: false,
    choices: [],
    value: null,
    near: null,
    when: {},
    written_as: {},
    ...known,
  };
}

export function buildState(known: Partial<FormState> = {}): FormState {
  return {
    type: "state",
    revision: 1,
    answered: 0,
    document: {},
    is_experiment: true,
    problems: [],
    yaml: "name: digits\n",
    yaml_problems: [],
    python: "experiment = 1\n",
    python_problems: [],
    hash: "0123456789abcdef",
    command: "workbench sweep digits.yaml",
    can_undo: false,
    undo_label: null,
    can_redo: false,
    saved_path: null,
    is_saved: false,
    address: null,
    notes: [],
    search: [],
    sections: [],
    models: [],
    datasets: [],
    presets: [],
    ...known,
  };
}

export function buildField(known: Partial<FormField> = {}): FormField {
  return { path: "training.epochs", label: "Epochs", kind: "whole", default: 10, value: null, ...known };
}

export function buildSection(name: string, fields: FormField[], known: Partial<Section> = {}): Section {
  return { name, title: name, fields, ...known };
}

/** A form with a state, its kernel, and answers that were given before it is drawn. */
export function buildForm(known: Partial<FormState> = {}, answers: Partial<Results> = {}) {
  const kernel = new FakeKernel();
  const form = new KernelConnection(kernel);
  kernel.emit(buildState(known));
  for (const [topic, result] of Object.entries(answers)) {
    kernel.emit({ type: "answer", topic, query: Number.MAX_SAFE_INTEGER, status: "done", result });
  }
  if (!isLoaded(form)) throw new Error("the kernel told no state");
  return { kernel, form };
}
