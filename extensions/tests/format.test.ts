import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAge, formatBytes, formatDuration, formatNumber, parseSettings, parseValue } from "../src/format";

test("numbers have four figures and no more zeros than needed", () => {
  const written = [0.98123456, 1, 0.5, 12345.678, 0.00012, -3, "NaN", "-Infinity", null, 0, 1e-9].map(formatNumber);
  assert.deepEqual(written, ["0.9812", "1", "0.5", "12346", "1.2e-4", "−3", "NaN", "−∞", "–", "0", "1e-9"]);
});

test("durations are read at a glance", () => {
  assert.deepEqual([0.25, 42, 125, 3700, 200_000, null].map(formatDuration), ["0.25 s", "42 s", "2 min 05 s", "1 h 01 min", "2 d 7 h", "–"]);
});

test("ages and sizes", () => {
  assert.deepEqual([formatAge(0, 30), formatAge(0, 600), formatAge(0, 7200)], ["just now", "10 min ago", "2 h ago"]);
  assert.deepEqual([formatBytes(512), formatBytes(1.5 * 2 ** 30)], ["512 B", "1.5 GiB"]);
});

test("what is typed is a value", () => {
  assert.deepEqual(["0.1", "true", "sgd", "[1, 2]", "30m"].map(parseValue), [0.1, true, "sgd", [1, 2], "30m"]);
  assert.deepEqual(parseSettings("a.b=1\n\n# no\nc = x=y"), { settings: { "a.b": 1, c: "x=y" }, problem: null });
  assert.match(parseSettings("nothing").problem!, /NAME=VALUE/);
});
