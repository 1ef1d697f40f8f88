import assert from "node:assert/strict";
import { test } from "node:test";
import { effect } from "@preact/signals";
import { KernelConnection } from "../src/forms/kernel_connection";
import { problemsWithoutField, problemsOf } from "../src/forms/problems";
import type { FormState } from "../src/types";
import {
  formatBounds,
  parseList,
  formatList,
  parseNumber,
  parseValue,
  toJsonText,
  parseFieldValue,
  toText,
} from "../src/forms/field_values";
import { FakeKernel, buildRow } from "./fake_kernel";

function state(known: Partial<FormState>): Partial<FormState> {
  return { type: "state", revision: 1, document: {}, problems: [], search: [], sections: [], ...known };
}

test("what was sent is answered by the state that contains it, and by no earlier one", () => {
  const kernel = new FakeKernel();
  const form = new KernelConnection(kernel);
  const first = form.edit([["name", "a"]], "Name");
  const second = form.edit([["name", "b"]], "Name");
  assert.ok(second > first);
  kernel.emit(state({ revision: 2, answered: first }));
  assert.deepEqual([form.isAnswered(first), form.isAnswered(second)], [true, false]);
  kernel.emit(state({ revision: 3, answered: second, yaml: "new" }));
  assert.ok(form.isAnswered(second));
  kernel.emit(state({ revision: 2, answered: first, yaml: "old" }));
  assert.equal(form.state?.yaml, "new");
  form.close();
});

test("only the answer to the last question of a part counts, and the old result stays until it comes", () => {
  const kernel = new FakeKernel();
  const form = new KernelConnection(kernel);
  const answer = (question: number, words: string) =>
    kernel.emit({ type: "answer", topic: "export", query: question, status: "done", result: { message: words } });
  form.query("export", { to: "a" });
  const early = kernel.last.query;
  answer(early, "first");
  assert.equal(form.answer("export")?.result?.message, "first");
  form.query("export", { to: "b" });
  const late = kernel.last.query;
  assert.notEqual(early, late);
  answer(early, "stale");
  assert.deepEqual([form.answer("export")?.status, form.answer("export")?.result?.message], ["working", "first"]);
  kernel.emit({ type: "answer", topic: "export", query: late, status: "failed", problem: { problem: "no room" } });
  assert.deepEqual([form.answer("export")?.status, form.answer("export")?.problem?.problem], ["failed", "no room"]);
  form.close();
});

test("a kernel that is busy is noticed, and a question that it works on is no sign of that", async () => {
  const kernel = new FakeKernel();
  const form = new KernelConnection(kernel);
  kernel.emit(state({ answered: Date.now() }));
  form.query("model");
  await new Promise((resolve) => setTimeout(resolve, 1700));
  assert.equal(form.isWaiting, false);
  const number = form.edit([["name", "a"]], "Name");
  await new Promise((resolve) => setTimeout(resolve, 1700));
  assert.equal(form.isWaiting, true);
  kernel.emit(state({ revision: 2, answered: number }));
  assert.equal(form.isWaiting, false);
  form.close();
});

test("of two views that speak in turn, neither takes an answer for older than its question", async () => {
  const [first, second] = [new FakeKernel(), new FakeKernel()];
  const forms = [first, second].map((kernel) => new KernelConnection(kernel));
  let last = 0;
  for (const at of [0, 1, 0, 0, 1, 0]) {
    await new Promise((resolve) => setTimeout(resolve, 2));
    forms[at].query("model");
    const { query: question } = [first, second][at].last;
    assert.ok(question > last);
    last = question;
  }
  forms.forEach((form) => form.close());
});

test("a form whose kernel is gone says so instead of waiting", () => {
  const kernel = new FakeKernel();
  const form = new KernelConnection(kernel);
  const seen: boolean[] = [];
  const end = effect(() => {
    seen.push(form.isDisconnected);
  });
  kernel.disconnect();
  form.edit([["name", "a"]], "Name");
  assert.deepEqual([form.isDisconnected, form.isWaiting], [true, false]);
  assert.deepEqual(seen, [false, true], "what shows it is drawn again");
  end();
  form.close();
});

test("a text that says something else than the experiment is known", () => {
  const kernel = new FakeKernel();
  const form = new KernelConnection(kernel);
  kernel.emit(state({ yaml_problems: [], python_problems: [] }));
  assert.equal(form.unappliedText, null);
  form.setUnapplied("python", true);
  assert.equal(form.unappliedText, "python");
  form.setUnapplied("python", false);
  kernel.emit(state({ yaml_problems: [{ problem: "wrong" }] as FormState["yaml_problems"], python_problems: [] }));
  assert.equal(form.unappliedText, "yaml");
  form.close();
});

test("what is typed becomes a value of its field, and stands there again as it was typed", () => {
  assert.deepEqual(["1e-4", " 3 ", "abc", "auto", "0x10", "1e999"].map(parseNumber), [
    1e-4,
    3,
    "abc",
    "auto",
    "0x10",
    "1e999",
  ]);
  assert.deepEqual(parseFieldValue("10m", "duration"), "10m");
  assert.deepEqual(parseFieldValue("90", "duration"), 90);
  assert.deepEqual(parseFieldValue(" a, b ,", "names"), ["a", "b"]);
  assert.equal(parseFieldValue("  ", "text"), null);
  assert.deepEqual(parseFieldValue('{"a": 1}', "mapping"), { a: 1 });
  assert.equal(toText(1e-6), "0.000001");
  for (const values of [["sgd", "adamw"], [8, 16], [true, null], ["1", "x"], [[1, 2], [3]], ["a, b"], []]) {
    assert.deepEqual(parseList(formatList(values)), values, formatList(values));
  }
  for (const value of ["x", "1", 1, true, null, [1], { a: "b" }, "true"])
    assert.deepEqual(parseValue(toJsonText(value)), value);
});

test("bounds are said as a person says them", () => {
  const field = { path: "x", label: "X", default: null, value: null } as const;
  assert.equal(formatBounds({ ...field, kind: "whole", low: 0, low_open: true }), "at least 1");
  assert.equal(formatBounds({ ...field, kind: "number", low: 0, low_open: true }), "above 0");
  assert.equal(formatBounds({ ...field, kind: "number", low: 0, high: 1, high_open: true }), "at least 0, below 1");
  assert.equal(formatBounds({ ...field, kind: "whole", low: 1, high: 8 }), "1 to 8");
  assert.equal(formatBounds({ ...field, kind: "text" }), "");
});

test("a problem belongs to one part, and stands above it where no field would show it", () => {
  const fields = [{ path: "training.epochs", label: "Epochs", kind: "whole" as const, default: 10, value: -1 }];
  const list = { num_items: 1, min_items: 0, next: {} };
  const problems = [
    "training.epochs",
    "training.unknown",
    "search.lr.low",
    "search.lr.high.x",
    "budget",
    "constraints.0",
    "constraints.1",
    null,
  ].map((field) => ({ problem: "wrong", field }));
  const shown = state({
    search: [buildRow({ low: 3, high: 1 })],
    sections: [
      { name: "training", title: "Training", fields },
      { name: "constraints", title: "Constraints", fields: [], items: list },
    ],
    problems,
  }) as FormState;
  assert.equal(problemsOf(shown, "space").length, 4);
  assert.deepEqual(
    problemsWithoutField(shown, "space").map((one) => one.field),
    ["training.unknown", "search.lr.high.x"],
  );
  assert.deepEqual(
    problemsWithoutField(shown, "run").map((one) => one.field),
    ["budget", "constraints.1", null],
  );
});
