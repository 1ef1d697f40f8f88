import assert from "node:assert/strict";
import { test } from "node:test";
import cases from "../../tests/foundation/formatting.json";
import * as format from "../src/format";
import { parseSettings, parseValue } from "../src/format";

// The front end writes no amounts of money, no configurations in one line and no times in UTC.
const NOT_WRITTEN = ["money", "params", "time"];
const WRITERS: Record<string, (input: never) => string> = {
  number: format.formatNumber,
  value: format.formatValue,
  count: (input: Parameters<typeof format.formatCount>) => format.formatCount(...input),
  rate: format.formatRate,
  percent: (input: number | string) => format.formatPercent(Number(input)),
  bytes: format.formatBytes,
  duration: (input: number | string) => format.formatDuration(Number(input)),
  age: format.formatAge,
};

test("quantities are written as the Python package writes them", () => {
  for (const { function: name, input, text } of cases) {
    if (NOT_WRITTEN.includes(name)) continue;
    assert.equal(WRITERS[name](input as never), text, `${name} of ${JSON.stringify(input)}`);
  }
});

test("what is not known is a dash", () => {
  const writers = [
    format.formatNumber,
    format.formatDuration,
    format.formatBytes,
    format.formatRate,
    format.formatPercent,
  ];
  assert.deepEqual(new Set(writers.map((write) => write(null))), new Set(["–"]));
});

test("the time of day has its date on another day", () => {
  const now = new Date(2026, 10, 22, 18, 0, 0);
  const at = (date: Date) => format.formatClock(date.getTime() / 1000, now);
  assert.equal(at(new Date(2026, 10, 22, 9, 5, 7)), "09:05:07");
  assert.equal(at(new Date(2026, 10, 21, 9, 5, 7)), "2026-11-21 09:05:07");
});

test("a metric is named in words, with its split, and any other name as it is written", () => {
  const names = ["val_mean_absolute_error", "train_loss", "test_top_5_accuracy", "loss", "value_of_x", "val loss"];
  assert.deepEqual(names.map(format.formatMetric), [
    "mean absolute error (validation)",
    "loss (training)",
    "top 5 accuracy (test)",
    "loss",
    "value_of_x",
    "val loss",
  ]);
});

test("typed text is read as a value", () => {
  assert.deepEqual(["0.1", "true", "sgd", "[1, 2]", "30m"].map(parseValue), [0.1, true, "sgd", [1, 2], "30m"]);
  assert.deepEqual(parseSettings("a.b=1\n\n# no\nc = x=y"), { settings: { "a.b": 1, c: "x=y" }, problem: null });
  assert.match(parseSettings("nothing").problem!, /NAME=VALUE/);
});
