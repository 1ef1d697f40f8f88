import assert from "node:assert/strict";
import { test } from "node:test";
import { isBrushable, rangeIn, withRange, type BrushedAxis } from "../src/brush";

function axis(known: Partial<BrushedAxis>): BrushedAxis {
  return { name: "x", is_log: false, low: 0, high: 10, is_whole: false, choices: null, ...known };
}

const RATE = axis({ name: "lr", is_log: true, low: 1e-4, high: 1 });
const DEPTH = axis({ name: "depth", low: 1, high: 5, is_whole: true });
const KIND = axis({ name: "optimizer", low: null, high: null, choices: ["sgd", "adam", "adamw"] });

test("a range of an axis becomes comparisons beside what the filter has, and is found in it again", () => {
  const filter = withRange("state = complete", RATE, [0.25, 0.75]);
  assert.equal(filter, "state = complete lr >= 0.001 lr <= 0.1");
  const [low, high] = rangeIn(filter, RATE)!;
  assert.ok(Math.abs(low - 0.25) < 1e-3 && Math.abs(high - 0.75) < 1e-3);
  assert.equal(withRange(filter, RATE, [0.5, 1.2]), "state = complete lr >= 0.01", "it replaces the one before");
  assert.equal(withRange(filter, RATE, null), "state = complete");
  assert.equal(rangeIn("state = complete", RATE), null);
});

test("whole numbers within a range are kept, no others", () => {
  assert.equal(withRange("", DEPTH, [0.2, 0.6]), "depth >= 2 depth <= 3");
});

test("categories outside a range are excluded", () => {
  const filter = withRange("", KIND, [0.4, 1.1]);
  assert.equal(filter, "optimizer != sgd");
  const [low, high] = rangeIn(filter, KIND)!;
  assert.ok(low > 0 && low < 0.5 && high > 1);
  assert.equal(withRange(filter, KIND, [0.1, 0.3]), "", "between two of them lies none");
});

test("comparisons of other names with the same ending or beginning stay", () => {
  const filter = "max_lr < 1 lr_end < 2 lr < 3";
  assert.equal(withRange(filter, RATE, null), "max_lr < 1 lr_end < 2");
});

test("what a filter cannot name cannot be brushed", () => {
  assert.ok(isBrushable(RATE) && isBrushable(KIND));
  assert.ok(!isBrushable(axis({ name: "two words" })));
  assert.ok(!isBrushable(axis({ choices: ["a", "b c"] })));
  assert.ok(!isBrushable(axis({ low: 3, high: 3 })));
});
