import assert from "node:assert/strict";
import { test } from "node:test";
import { isAlert, levelOf, notificationsAmong } from "../src/alerts";
import type { LogLine } from "../src/types";

function line(seq: number, fields: Partial<LogLine>): LogLine {
  return { seq, time_unix_s: seq, level: "info", trial: null, text: `line ${seq}`, ...fields };
}

test("an alert is told whatever its level, and other lines where they warn", () => {
  const lines = [
    line(1, {}),
    line(2, { level: "good", text: "run complete" }),
    line(7, { alert: true, text: "alert: trial 3 reached the target" }),
    line(12, { level: "error", trial: 4 }),
  ];
  assert.deepEqual(
    notificationsAmong(lines).map((told) => told.seq),
    [7, 12],
  );
  assert.deepEqual(lines.map(isAlert), [false, false, true, true]);
  assert.deepEqual(lines.map(levelOf), ["success", "success", "success", "error"]);
});

test("what an alert speaks of is not told besides", () => {
  const lines = [
    line(4, { level: "error", trial: 2, text: "trial 2 failed (diverged)" }),
    line(5, { level: "warning", trial: 2, alert: true, text: "alert: trial 2 diverged" }),
    line(6, { level: "error", trial: 3, text: "trial 3 failed (oom)" }),
    line(40, { level: "warning", trial: 3, alert: true, text: "alert: trial 3, worker 0 printed: ..." }),
  ];
  assert.deepEqual(
    notificationsAmong(lines).map((told) => told.seq),
    [5, 6, 40],
  );
});
