import assert from "node:assert/strict";
import { test } from "node:test";
import type { Json } from "../src/forms/message_types";
import type { FormField, FormState } from "../src/types";
import { initialSearch, partOf, rowsOf, scaleOf, stepped, valueAt, withKind } from "../src/forms/space";

function rows(search: Json) {
  return rowsOf({ document: { search } } as unknown as FormState);
}

function field(known: Partial<FormField>): FormField {
  return { path: "training.x", label: "X", kind: "number", default: null, value: null, ...known };
}

test("a parameter is shown as the kind that its file means", () => {
  const kinds = rows({
    lr: { low: 1e-4, high: 0.1, log: true },
    layers: { low: 1, high: 3 },
    share: { type: "float", low: 0, high: 1 },
    width: { choices: [8, 16] },
    bare: "sgd",
    answer: { value: [1, 2], when: { width: 8 } },
  }).map(({ name, kind }) => [name, kind]);
  assert.deepEqual(kinds, [
    ["lr", "float"],
    ["layers", "int"],
    ["share", "float"],
    ["width", "choices"],
    ["bare", "fixed"],
    ["answer", "fixed"],
  ]);
});

test("what was typed and is wrong is shown as it was typed", () => {
  const [row] = rows({ lr: { low: "abc", high: 1, type: "float" } });
  assert.deepEqual([row.kind, row.low, row.high], ["float", "abc", 1]);
  assert.deepEqual(rows("nonsense"), []);
});

test("another kind keeps the numbers and the condition", () => {
  const [row] = rows({ lr: { low: 0.1, high: 2.5, log: true, when: { optimizer: "sgd" } } });
  const when = { optimizer: "sgd" };
  assert.deepEqual(withKind(row, "choices"), { choices: [0.1, 2.5], when });
  assert.deepEqual(withKind(row, "int"), { type: "int", low: 0, high: 3, log: true, when });
  assert.deepEqual(withKind(row, "fixed"), { value: 0.1, when });
  const [choices] = rows({ width: { choices: [8, 16, 32] } });
  assert.deepEqual(withKind(choices, "int"), { type: "int", low: 8, high: 32 });
  assert.equal(withKind(choices, "fixed"), 8);
  assert.deepEqual(withKind(rows({ name: "sgd" })[0], "float"), { type: "float", low: 0, high: 1 });
});

test("the search of a field begins within its bounds", () => {
  assert.deepEqual(initialSearch(field({ kind: "switch" })), { choices: [true, false] });
  assert.deepEqual(initialSearch(field({ kind: "choice", choices: ["auto", "fp32", "bf16"] })), {
    choices: ["fp32", "bf16"],
  });
  assert.deepEqual(initialSearch(field({ kind: "whole", low: 1, high: 8, default: 6 })), {
    type: "int",
    low: 3,
    high: 8,
  });
  assert.deepEqual(initialSearch(field({ low: 0, high: 1, high_open: true, default: 0.9 })), {
    type: "float",
    low: 0,
    high: 0.9,
  });
  assert.deepEqual(initialSearch(field({ default: 0.01 })), { type: "float", low: 0.001, high: 0.1, log: true });
  assert.deepEqual(initialSearch(field({ default: "auto" })), { type: "float", low: 1e-4, high: 0.1, log: true });
});

test("a scale goes there and back, and stays where a field ends", () => {
  const log = scaleOf(1e-4, 0.1, true, false);
  assert.deepEqual([log.low, log.high], [1e-5, 1]);
  for (const value of [1e-5, 2.3e-4, 0.05, 1]) assert.equal(valueAt(log, partOf(log, value)), value);
  const bounded = scaleOf(0.8, 0.98, false, false, field({ low: 0, high: 1 }));
  assert.ok(bounded.low >= 0 && bounded.low < 0.8);
  assert.equal(bounded.high, 1);
  assert.equal(valueAt(scaleOf(1, 4, false, true), 0.5) % 1, 0);
});

test("every press of a key moves a handle, up and down the same way, and not beyond the scale", () => {
  for (const scale of [
    scaleOf(1e-4, 0.1, true, false),
    scaleOf(0, 0.4, false, false),
    scaleOf(1, 64, true, true),
    scaleOf(-2, 3, false, false),
  ]) {
    let value = scale.low;
    const seen = [value];
    while (value < scale.high && seen.length < 5000) {
      const next = stepped(scale, value, 1);
      assert.ok(next > value, `${next} after ${value}`);
      value = next;
      seen.push(value);
    }
    assert.equal(value, scale.high);
    assert.equal(stepped(scale, scale.high, 1), scale.high);
    for (const before of seen.reverse().slice(1, 200)) {
      assert.ok(
        Math.abs(stepped(scale, value, -1) - before) < 1e-9 * Math.abs(scale.high),
        `${before} before ${value}`,
      );
      value = before;
    }
  }
});
