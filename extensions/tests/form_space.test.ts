import assert from "node:assert/strict";
import { test } from "node:test";
import type { FormField } from "../src/types";
import { partOf, scaleOf, stepped, valueAt } from "../src/forms/space";

function field(known: Partial<FormField>): FormField {
  return { path: "training.x", label: "X", kind: "number", default: null, value: null, ...known };
}

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
