import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeFrame, FrameError } from "../src/frames";
import { hiddenSubscription, subscriptionOf } from "../src/subscription";
import { State } from "../src/state";
import { tabOf, tabsOf } from "../src/tabs";
import type { ChartUpdate, RunDetail, Subscription, Update } from "../src/types";
import { MadeNumbers, madeChart, madeFrame } from "./frame_builder";
import { buildRun } from "./view_builder";

const LOOK: Subscription = { run: "a" };
const WINDOW = { offset: 0, limit: 40 };

function curve(numbers: MadeNumbers, trial: number, start: number, y: number[]): ChartUpdate["curves"][number] {
  const x = y.map((_, index) => start + index);
  return { trial, start, x: numbers.add(x), y: numbers.add(y, "f32") };
}

function take(state: State, picture: Partial<Update>, numbers?: MadeNumbers, asked: Subscription = LOOK): void {
  state.apply(decodeFrame(madeFrame(picture, numbers)), asked);
}

function withCurve(): State {
  const state = new State({ run: "a" });
  const numbers = new MadeNumbers();
  const best = { x: numbers.add([0, 1]), y: numbers.add([1, 2]) };
  take(
    state,
    { chart: madeChart({ shown: [3], states: ["running"], curves: [curve(numbers, 3, 0, [1, 2, 3])], best }) },
    numbers,
  );
  return state;
}

function drawn(state: State, trial: number): number[] {
  const held = state.chart!.curves.get(trial)!;
  return [...held.y.subarray(0, held.length)];
}

test("new points are appended", () => {
  const state = withCurve();
  const numbers = new MadeNumbers();
  take(
    state,
    {
      chart: madeChart({
        is_overview: false,
        shown: [3],
        states: ["complete"],
        curves: [curve(numbers, 3, 3, [4, 5])],
      }),
    },
    numbers,
  );
  assert.deepEqual(drawn(state, 3), [1, 2, 3, 4, 5]);
  assert.equal(state.chart!.best!.length, 2, "the best so far stays until it is told anew");
});

test("a curve is cut where new points begin", () => {
  const state = withCurve();
  const numbers = new MadeNumbers();
  take(state, { chart: madeChart({ shown: [3], states: ["running"], curves: [curve(numbers, 3, 1, [9])] }) }, numbers);
  assert.deepEqual(drawn(state, 3), [1, 9]);
  assert.equal(state.chart!.best, null);
});

test("a curve that is shown no more is dropped", () => {
  const state = withCurve();
  take(state, { chart: madeChart({ shown: [], states: [] }) });
  assert.equal(state.chart!.curves.size, 0);
});

test("another metric begins with nothing", () => {
  const state = withCurve();
  take(state, { chart: madeChart({ metric: "loss", shown: [3], states: ["running"] }) });
  assert.equal(state.chart!.curves.size, 0);
});

test("points that do not follow on what is held are an error", () => {
  const state = withCurve();
  const numbers = new MadeNumbers();
  const gap = madeChart({ shown: [3], states: ["running"], curves: [curve(numbers, 3, 9, [1])] });
  assert.throws(() => take(state, { chart: gap }, numbers), FrameError);
});

test("a frame about a run that is shown no more tells nothing of it", () => {
  const state = withCurve();
  state.show({ run: "b" });
  take(state, { problem: { problem: "of a" }, runs: { items: [], total: 3 } });
  assert.equal(state.problem, null);
  assert.equal(state.runs!.total, 3);
});

test("another run forgets what belonged to the first", () => {
  const state = withCurve();
  state.show({ trial: 3, chart: { ...state.view.chart, metric: "loss", chosen: [3] } });
  state.show({ run: "b" });
  assert.equal(state.chart, null);
  assert.deepEqual([state.view.trial, state.view.chart.metric, state.view.chart.chosen], [null, "", []]);
});

test("lines of the log come once, and not too many are kept", () => {
  const state = withCurve();
  const line = (seq: number) => ({ seq, time_unix_s: seq, level: "info" as const, trial: null, text: `line ${seq}` });
  take(state, { log: { lines: [line(1), line(2)], skipped: 4, last_seq: 2 } });
  take(state, { log: { lines: [line(2), line(3)], skipped: 0, last_seq: 3 } });
  assert.deepEqual(
    state.log.map(({ seq }) => seq),
    [1, 2, 3],
  );
  const many = Array.from({ length: 1200 }, (_, index) => line(index + 4));
  take(state, { log: { lines: many, skipped: 0, last_seq: 1203 } });
  assert.equal(state.log.length, 1000);
  assert.equal(state.logSkipped, 4 + 203);
});

test("a problem is gone with the next picture", () => {
  const state = withCurve();
  take(state, { problem: { problem: "the store is locked" } });
  assert.equal(state.problem!.problem, "the store is locked");
  take(state, { seq: 4 });
  assert.equal(state.problem, null);
});

test("what a run begins with is shown of each, and any other view stays", () => {
  const state = new State({ run: "a" });
  state.run = buildRun();
  assert.equal(tabOf(state), "curves");
  const candidates = { summary: "", columns: [], rows: [] };
  state.show({ tab: "curves" });
  state.show({ run: "b" });
  state.run = buildRun({ candidates });
  assert.equal(tabOf(state), "result");
  state.show({ tab: "analysis" });
  state.show({ run: "a" });
  assert.equal(tabOf(state), "analysis");
});

test("only what is on the screen is asked for", () => {
  const state = new State({ run: "a", tab: "log", trial: 2 });
  assert.deepEqual(Object.keys(subscriptionOf(state, "wide", WINDOW, WINDOW)).sort(), ["log_after", "run", "runs"]);
  state.show({ tab: "resources" });
  assert.deepEqual(Object.keys(subscriptionOf(state, "wide", WINDOW, WINDOW)).sort(), [
    "log_after",
    "resources",
    "run",
    "runs",
    "trial",
    "trial_log",
  ]);
  assert.deepEqual(Object.keys(subscriptionOf(state, "output", WINDOW, WINDOW)).sort(), [
    "chart",
    "log_after",
    "run",
    "table",
    "trial",
    "trial_log",
  ]);
  assert.deepEqual(hiddenSubscription(state), { run: "a", log_after: 0 });
});

test("advice without trials has no curves, and shows its card first", () => {
  const state = new State({ run: "a" });
  assert.deepEqual([tabOf(state), tabsOf(state).includes("advice")], ["curves", false]);
  state.run = { kind: "advice", counts: {}, card: null } as unknown as RunDetail;
  assert.equal(tabOf(state), "advice");
  assert.equal(subscriptionOf(state, "wide", WINDOW, WINDOW).chart, undefined);
});

test("the trial that is shown in full is drawn", () => {
  const state = new State({ run: "a", trial: 5 });
  assert.deepEqual(subscriptionOf(state, "wide", WINDOW, WINDOW).chart!.chosen, [5]);
});
