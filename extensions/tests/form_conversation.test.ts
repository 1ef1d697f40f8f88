import assert from "node:assert/strict";
import { test } from "node:test";
import { Conversation, type Channel } from "../src/forms/conversation";
import { homeless, problemsOf } from "../src/forms/problems";
import type { FormState } from "../src/forms/protocol";
import { boundsOf, listOf, listText, numberOr, parsed, textOf, valueOf, writtenOf } from "../src/forms/written";

interface Sent {
  number: number;
  type: string;
  question: number;
}

class Kernel implements Channel {
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

  tell(content: unknown): void {
    this.listener?.(content, []);
  }

  /** As a channel after a restart of the kernel. */
  fail(): void {
    this.send = () => {
      throw new Error("Cannot send");
    };
  }

  get last(): Sent {
    return this.sent.at(-1)!;
  }
}

function state(known: Partial<FormState>): Partial<FormState> {
  return { type: "state", revision: 1, document: {}, problems: [], sections: [], ...known };
}

test("what was sent is answered by the state that contains it, and by no earlier one", () => {
  const kernel = new Kernel();
  const form = new Conversation(kernel, () => undefined);
  const first = form.edit([["name", "a"]], "Name");
  const second = form.edit([["name", "b"]], "Name");
  assert.ok(second > first);
  kernel.tell(state({ revision: 2, answered: first }));
  assert.deepEqual([form.isAnswered(first), form.isAnswered(second)], [true, false]);
  kernel.tell(state({ revision: 3, answered: second, yaml: "new" }));
  assert.ok(form.isAnswered(second));
  kernel.tell(state({ revision: 2, answered: first, yaml: "old" }));
  assert.equal(form.state?.yaml, "new");
  form.end();
});

test("only the answer to the last question of a part counts, and the old picture stays until it comes", () => {
  const kernel = new Kernel();
  const form = new Conversation(kernel, () => undefined);
  const answer = (question: number, words: string) =>
    kernel.tell({ type: "part", name: "export", question, status: "done", picture: { words } });
  form.ask("export", { to: "a" });
  const early = kernel.last.question;
  answer(early, "first");
  assert.equal(form.part("export")?.picture?.words, "first");
  form.ask("export", { to: "b" });
  const late = kernel.last.question;
  assert.notEqual(early, late);
  answer(early, "stale");
  assert.deepEqual([form.part("export")?.status, form.part("export")?.picture?.words], ["working", "first"]);
  kernel.tell({ type: "part", name: "export", question: late, status: "failed", problem: { problem: "no room" } });
  assert.deepEqual([form.part("export")?.status, form.part("export")?.problem?.problem], ["failed", "no room"]);
  form.end();
});

test("a kernel that is busy is noticed, and a question that it works on is no sign of that", async () => {
  const kernel = new Kernel();
  const form = new Conversation(kernel, () => undefined);
  kernel.tell(state({ answered: Date.now() }));
  form.ask("model");
  await new Promise((resolve) => setTimeout(resolve, 1700));
  assert.equal(form.isWaiting, false);
  const number = form.edit([["name", "a"]], "Name");
  await new Promise((resolve) => setTimeout(resolve, 1700));
  assert.equal(form.isWaiting, true);
  kernel.tell(state({ revision: 2, answered: number }));
  assert.equal(form.isWaiting, false);
  form.end();
});

test("of two views that speak in turn, neither takes an answer for older than its question", async () => {
  const [first, second] = [new Kernel(), new Kernel()];
  const forms = [first, second].map((kernel) => new Conversation(kernel, () => undefined));
  let last = 0;
  for (const at of [0, 1, 0, 0, 1, 0]) {
    await new Promise((resolve) => setTimeout(resolve, 2));
    forms[at].ask("model");
    const { question } = [first, second][at].last;
    assert.ok(question > last);
    last = question;
  }
  forms.forEach((form) => form.end());
});

test("a form whose kernel is gone says so instead of waiting", () => {
  const kernel = new Kernel();
  let num_drawn = 0;
  const form = new Conversation(kernel, () => (num_drawn += 1));
  kernel.fail();
  form.edit([["name", "a"]], "Name");
  assert.deepEqual([form.isCutOff, form.isWaiting, num_drawn], [true, false, 1]);
  form.end();
});

test("a text that says something else than the experiment is known", () => {
  const kernel = new Kernel();
  const form = new Conversation(kernel, () => undefined);
  kernel.tell(state({ yaml_problem: null, python_problem: null }));
  assert.equal(form.unappliedText, null);
  form.noteText("python", true);
  assert.equal(form.unappliedText, "python");
  form.noteText("python", false);
  kernel.tell(state({ yaml_problem: { problem: "wrong" } as FormState["yaml_problem"], python_problem: null }));
  assert.equal(form.unappliedText, "yaml");
  form.end();
});

test("what is typed becomes a value of its field, and stands there again as it was typed", () => {
  assert.deepEqual(["1e-4", " 3 ", "abc", "auto", "0x10", "1e999"].map(numberOr), [1e-4, 3, "abc", "auto", "0x10", "1e999"]);
  assert.deepEqual(valueOf("10m", "duration"), "10m");
  assert.deepEqual(valueOf("90", "duration"), 90);
  assert.deepEqual(valueOf(" a, b ,", "names"), ["a", "b"]);
  assert.equal(valueOf("  ", "text"), null);
  assert.deepEqual(valueOf('{"a": 1}', "mapping"), { a: 1 });
  assert.equal(writtenOf(1e-6), "0.000001");
  for (const values of [["sgd", "adamw"], [8, 16], [true, null], ["1", "x"], [[1, 2], [3]], ["a, b"], []]) {
    assert.deepEqual(listOf(listText(values)), values, listText(values));
  }
  for (const value of ["x", "1", 1, true, null, [1], { a: "b" }, "true"]) assert.deepEqual(parsed(textOf(value)), value);
});

test("bounds are said as a person says them", () => {
  const field = { path: "x", label: "X", default: null, value: null } as const;
  assert.equal(boundsOf({ ...field, kind: "whole", low: 0, low_open: true }), "at least 1");
  assert.equal(boundsOf({ ...field, kind: "number", low: 0, low_open: true }), "above 0");
  assert.equal(boundsOf({ ...field, kind: "number", low: 0, high: 1, high_open: true }), "at least 0, below 1");
  assert.equal(boundsOf({ ...field, kind: "whole", low: 1, high: 8 }), "1 to 8");
  assert.equal(boundsOf({ ...field, kind: "text" }), "");
});

test("a problem belongs to one part, and stands above it where no field would show it", () => {
  const fields = [{ path: "training.epochs", label: "Epochs", kind: "whole" as const, default: 10, value: -1 }];
  const list = { num_items: 1, least: 0, next: {} };
  const problems = ["training.epochs", "training.unknown", "search.lr.low", "search.lr.high.x", "budget", "constraints.0", "constraints.1", null].map(
    (field) => ({ problem: "wrong", field }),
  );
  const shown = state({
    document: { search: { lr: { low: 3, high: 1 } } },
    sections: [{ name: "training", title: "Training", fields }, { name: "constraints", title: "Constraints", fields: [], list }],
    problems,
  }) as FormState;
  assert.equal(problemsOf(shown, "space").length, 4);
  assert.deepEqual(homeless(shown, "space").map((one) => one.field), ["training.unknown", "search.lr.high.x"]);
  assert.deepEqual(homeless(shown, "run").map((one) => one.field), ["budget", "constraints.1", null]);
});
