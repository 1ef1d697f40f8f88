import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { act, cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/preact";
import { Curve } from "../src/curve";
import { FIRST_VIEW } from "../src/state";
import type { Importance, LogLine, TrialDetail } from "../src/types";
import { Advice } from "../src/views/advice";
import { Analysis } from "../src/views/analysis";
import { App } from "../src/views/app";
import { Chart } from "../src/views/chart";
import { Log } from "../src/views/log";
import { Head } from "../src/views/run_header";
import { Resources } from "../src/views/resources";
import { Runs } from "../src/views/runs";
import { StatusLine } from "../src/views/status_line";
import { Throughput } from "../src/views/throughput";
import { Trial } from "../src/views/trial";
import { madeChart } from "./frame_builder";
import { buildAnalysis, buildCard, buildController, buildFront, buildOffer, buildRun } from "./view_builder";

afterEach(cleanup);

const TRIAL = {
  number: 2,
  state: "failed",
  reason: "oom",
  message: "out of memory",
  traceback: "Traceback: line 1",
  params: { lr: 0.1 },
  plan: "256 samples = 64 x 2 accumulated x 2 workers",
  values: { val_accuracy: 0.5 },
  source: "sampler",
  seed: 0,
  course: [
    { key: "step", label: "step", meaning: "The step of its last report.", value: 40 },
    { key: "duration_s", label: "duration (s)", meaning: "How long it ran.", unit: "s", value: 427.1 },
    { key: "samples_per_s", label: "samples/s", meaning: "Speed.", format: "rate", value: 100 },
  ],
  parts_s: { forward: 0.03, backward: 0.01 },
  setbacks: [{ attempt: 1, reason: "oom", message: "no room", next_plan: { micro_batch: 32 } }],
  resizes: [],
  workers: ["2 x GPU 0 of here"],
  processes: [12, 13],
  offers: [buildOffer("export", "Export")],
} as unknown as TrialDetail;

function line(seq: number, fields: Partial<LogLine>): LogLine {
  return { seq, time_unix_s: seq, level: "info", trial: null, text: `line ${seq}`, ...fields };
}

test("a run that is chosen is shown in the same tab, unless another tab has it", () => {
  const { controller, state } = buildController();
  const revealed: string[] = [];
  controller.host.openRun = () => assert.fail("no further tab is opened");
  controller.host.revealRun = (run) => run === "b" && revealed.push(run) > 0;
  controller.selectRun("b");
  assert.deepEqual([revealed, state.view.run], [["b"], "a"]);
  controller.selectRun("c");
  assert.equal(state.view.run, "c");
});

test("the list of runs selects in a panel, compares in a tab, and explains how to start", () => {
  const item = {
    run_id: "b",
    name: "other",
    state: "running" as const,
    kind: "sweep" as const,
    created_unix_s: 0,
    owner: "1 on here",
    progress: 0.2,
    best: "val_accuracy 0.9",
    num_trials: 3,
  };
  const panel = buildController({ runs: { items: [item], total: 1 } }, "panel");
  const { unmount } = render(<Runs controller={panel.controller} />);
  fireEvent.click(screen.getByRole("button", { name: /other/ }));
  assert.equal(panel.state.view.run, "b");
  assert.equal(screen.queryByRole("checkbox"), null);
  // Where there is no room, only what is in the span is cut: the name.
  const result = document.querySelector(".workbench-run-best")!;
  assert.deepEqual(
    [...result.children].map((each) => [each.tagName, each.textContent]),
    [
      ["SPAN", "val_accuracy"],
      ["B", " 0.9"],
    ],
  );
  unmount();
  const wide = buildController({ runs: { items: [item], total: 1 } });
  const second = render(<Runs controller={wide.controller} />);
  fireEvent.click(screen.getByRole("checkbox", { name: "Compare other" }));
  assert.deepEqual(wide.state.view.compared, ["b"]);
  second.unmount();
  const empty = buildController({ runs: { items: [], total: 0 } });
  render(<Runs controller={empty.controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Start…" }));
  assert.equal(empty.controller.dialog?.kind, "start");
});

test("the log can be reduced to alerts, and leads to a trial", () => {
  const log = [line(1, {}), line(2, { level: "error", trial: 4, text: "trial 4 failed" })];
  const { controller, state } = buildController({ log });
  render(<Log controller={controller} />);
  assert.equal(screen.getAllByRole("listitem").length, 2);
  fireEvent.click(screen.getByRole("checkbox"));
  assert.deepEqual(
    screen.getAllByRole("listitem").map((one) => one.textContent!.includes("trial 4 failed")),
    [true],
  );
  fireEvent.click(screen.getByRole("button", { name: "trial 4" }));
  assert.deepEqual([state.view.tab, state.view.trial], ["curves", 4]);
});

test("a machine that does not respond and a GPU that is lost are reported", () => {
  const gpu = { index: 0, name: "H200", state: "lost", slowed_by: [], xids: [79], trials: [3] };
  const node = { node: "a", host: "alpha", state: "ok", num_cpus: 8, memory_bytes: 2 ** 30, trials: [], gpus: [gpu] };
  const silent = { ...node, node: "b", host: "beta", state: "silent", gpus: [] };
  const resources = { time_unix_s: 0, nodes: [node, silent] } as never;
  const { controller } = buildController({ resources });
  render(<Resources controller={controller} />);
  assert.match(screen.getByRole("region", { name: "Machine beta" }).textContent!, /does not respond/);
  const found = screen.getByRole("group", { name: "GPU 0" });
  assert.match(found.textContent!, /trial 3/);
  assert.match(found.textContent!, /is lost.*Xid 79/s);
});

test("a trial is shown with its plan, setbacks, step and traceback, and can be closed", () => {
  const { controller, state } = buildController({ trial: TRIAL }, "wide", { trial: 2 });
  const { container } = render(<Trial controller={controller} />);
  assert.match(
    container.textContent!,
    /256 samples = 64 x 2 accumulated x 2 workers.*duration7 min 7 s.*samples\/s100.*seed0.*forward.*75%.*attempt 2: oom.*micro_batch = 32.*line 1/s,
  );
  fireEvent.click(screen.getByRole("button", { name: /Export/ }));
  assert.equal(controller.dialog?.kind, "offer");
  fireEvent.click(screen.getByRole("button", { name: "Close the trial" }));
  assert.equal(state.view.trial, null);
});

test("the throughput shows the step of the best trial, and of no other", () => {
  const best = { trial: 2, values: {}, params: {} };
  const { controller, state } = buildController({ trial: TRIAL, run: buildRun({ best }) });
  const { rerender } = render(<Throughput controller={controller} />);
  assert.ok(screen.getByRole("region", { name: "Step time of trial 2" }));
  state.run = buildRun({ best: { ...best, trial: 5 } });
  rerender(<Throughput controller={controller} />);
  assert.equal(screen.queryByRole("region", { name: /Step time/ }), null);
});

test("the chart names its best trial, counts its curves and changes its axis", () => {
  const update = madeChart({ shown: [1, 2], states: ["complete", "running"], best_trial: 1, num_trials: 5 });
  const curves = new Map([
    [1, Curve.of(Float64Array.of(0, 1), Float64Array.of(0.5, 0.9))],
    [2, Curve.of(Float64Array.of(0), Float64Array.of(NaN))],
  ]);
  const { controller, state } = buildController({ chart: { update, curves, band: null, best: null }, run: buildRun() });
  const { container, rerender } = render(<Chart controller={controller} />);
  assert.match(container.querySelector(".workbench-legend")!.textContent!, /best: trial 1.*1 of 5 trials/s);
  fireEvent.change(screen.getByRole("combobox", { name: "Horizontal axis" }), { target: { value: "time" } });
  rerender(<Chart controller={controller} />);
  const metric = screen.getByRole("combobox", { name: "Metric" });
  const options = within(metric).getAllByRole<HTMLOptionElement>("option");
  assert.deepEqual(
    options.map(({ value, text }) => [value, text]),
    [
      ["val_accuracy", "accuracy (validation)"],
      ["loss", "loss"],
    ],
  );
  fireEvent.change(metric, { target: { value: "loss" } });
  assert.deepEqual([state.view.chart.axis, state.view.chart.metric], ["time", "loss"]);
});

test("with several objectives the legend names the best trial of the metric, as none is the best of all", () => {
  const update = madeChart({ metric: "loss", shown: [1], states: ["complete"], best_trial: 1, num_trials: 1 });
  const chart = { update, curves: new Map(), band: null, best: null };
  const run = buildRun({ best: null, front: { num_trials: 2, extremes: [] } });
  const view = { chart: { ...FIRST_VIEW.chart, metric: "loss" } };
  const { controller } = buildController({ chart, run }, "wide", view);
  const { container } = render(<Chart controller={controller} />);
  assert.match(container.querySelector(".workbench-legend")!.textContent!, /best loss: trial 1/);
});

test("an empty chart explains why", () => {
  const chart = { update: madeChart({}), curves: new Map(), band: null, best: null };
  const { controller, state } = buildController({ chart });
  const { container, rerender } = render(<Chart controller={controller} />);
  const why = () => container.querySelector(".workbench-chart-empty")!.textContent!;
  assert.match(why(), /No trial has reported/);
  state.run = buildRun({ state: "complete", ended_unix_s: 9 });
  rerender(<Chart controller={controller} />);
  assert.equal(why(), "No trial reported this.");
});

test("a figure that cannot be drawn is replaced by the reason, and is asked for again on request", async () => {
  const run = buildRun({ figures: ["timeline"], state: "complete" });
  const { controller, requests, reply } = buildController({ run }, "wide", { figure: "timeline" });
  reply({ problem: "the process that drew timeline ended" }, 409);
  reply(null, 202);
  render(<Analysis controller={controller} />);
  await waitFor(() => screen.getByText(/the process that drew timeline ended/));
  assert.equal(requests[0].path, "workbench/api/runs/a/figures/timeline");
  fireEvent.click(screen.getByRole("button", { name: "Try again" }));
  await waitFor(() => screen.getByText(/Drawing the figure/));
  assert.equal(requests.length, 2);
});

test("importance tells how far it is, what it is, and is asked for again where it failed", () => {
  const importance: Importance = { state: "computing", words: "from 80 trials, for 12 s" };
  const { controller, state, changes } = buildController({ run: buildRun(), importance, analysis: buildAnalysis() });
  render(<Analysis controller={controller} />);
  const card = screen.getByRole("region", { name: "Importance" });
  assert.match(card.textContent, /Computing, from 80 trials, for 12 s/);
  act(() => {
    state.importance = { state: "failed", words: "The process ended." };
  });
  fireEvent.click(within(card).getByRole("button", { name: "Compute again" }));
  assert.deepEqual([state.importanceAttempt, changes], [1, ["view"]]);
  const bar = { name: "lr", share: 0.6, low: 0.4, high: 0.75 };
  act(() => {
    state.importance = { state: "ready", words: "from 80 trials", bars: [bar], notes: ["Not resolved: width"] };
  });
  assert.match(card.textContent, /lr60% 40% to 75%from 80 trialsNot resolved: width/);
  assert.equal(card.querySelector<HTMLElement>(".workbench-importance-share")!.style.inlineSize, "60%");
});

test("the head of a run that has ended has the parameters that mattered, without another tab", () => {
  const bars = ["lr", "width", "depth", "seed"].map((name) => ({ name, share: 0.6, low: 0.4, high: 0.75 }));
  const run = buildRun({ state: "complete", summary: { sentences: ["Trial 3 is the best."] } });
  const importance: Importance = { state: "ready", words: "from 80 trials", bars };
  const { controller, state } = buildController({ run, importance }, "wide", { tab: "curves" });
  assert.deepEqual([controller.subscription().importance, controller.subscription().analysis], [true, undefined]);
  const { container } = render(<Head controller={controller} />);
  const line = screen.getByRole("group", { name: /Importance/ });
  assert.match(line.textContent, /lr60% 40% to 75%width.*depth.*1 more/);
  fireEvent.click(within(line).getByRole("button", { name: "1 more" }));
  assert.equal(state.view.tab, "analysis");
  render(<Head controller={controller} />, { container });
  assert.equal(screen.queryByRole("group", { name: /Importance/ }), null, "it is there in full");
  // While a run goes on, nothing is computed that nobody asked for.
  state.run = buildRun({ state: "running" });
  state.view.tab = "curves";
  assert.equal(controller.subscription().importance, undefined);
});

test("the analysis asks for what the filter of the table leaves, and so do the curves", () => {
  const view = { tab: "analysis" as const, table: { ...FIRST_VIEW.table, text: "lr < 0.01" } };
  const { controller } = buildController({ run: buildRun() }, "wide", view);
  assert.deepEqual(controller.subscription().analysis, { text: "lr < 0.01", attempt: 0 });
  controller.show({ tab: "curves" });
  assert.equal(controller.subscription().chart?.text, "lr < 0.01");
  assert.equal(controller.subscription().analysis, undefined);
});

test("with several objectives the front comes first, and the curves of a metric on request", () => {
  const run = buildRun({ best: null, front: { num_trials: 2, extremes: [] } });
  const { controller, state } = buildController({ run, analysis: buildFront() });
  render(<Chart controller={controller} />);
  assert.ok(controller.subscription().analysis);
  screen.getByRole("img", { name: "2 trials on the front of loss and latency" });
  fireEvent.change(screen.getByRole("combobox", { name: "Metric" }), { target: { value: "loss" } });
  assert.equal(state.view.chart.metric, "loss");
  assert.equal(controller.subscription().analysis, undefined);
});

test("the advice is a card with its gain as a bar, once there is one", () => {
  const { controller, state } = buildController({ run: buildRun() });
  const { rerender } = render(<Advice controller={controller} />);
  assert.ok(screen.getByText("No advice yet"));
  state.run = buildRun({ card: buildCard() });
  rerender(<Advice controller={controller} />);
  const card = screen.getByRole("article", { name: "Advice" });
  for (const text of [
    "256 samples = 128 x 1 accumulated x 2 workers",
    "it fits",
    "0.79 times the samples/s",
    "more noise",
  ]) {
    assert.ok(within(card).getByText(text), text);
  }
  const bar = within(card).getByRole("img", { name: /^2\.00 times \(1\.60 to 2\.40\) the samples/ });
  assert.equal(bar.querySelector<HTMLElement>(".workbench-gain-bar")!.style.inlineSize, "75.8%");
});

test("an automatic run shows the model it chose and its test score in place of a best trial", () => {
  const chosen = {
    model: "ensemble of 2",
    metric: "accuracy",
    value: 0.9737,
    baseline: 0.62,
    summary: ["ensemble of 2: accuracy 0.9737 on 114 held-out test samples", "most frequent class: accuracy 0.62"],
    columns: ["model", "trial", "test_accuracy", "training time"],
    rows: [
      ["ensemble of 2", "", "0.9737", ""],
      ["forest", "4", "", "3 s"],
    ],
  };
  const run = buildRun({
    state: "complete",
    best: null,
    counts: { stopped: 2, complete: 5 },
    num_configurations: 2,
    chosen,
  });
  const { controller } = buildController({ run }, "output");
  render(<App controller={controller} />);
  const facts = document.querySelector(".workbench-facts")!.textContent;
  assert.match(facts, /test accuracy0\.9737ensemble of 2/);
  assert.match(facts, /candidates2$/);
  const result = screen.getByRole("article", { name: "Result" });
  assert.match(result.textContent, /0\.9737 on 114 held-out test samples/);
  assert.equal(result.querySelectorAll("tbody tr").length, 2);
  assert.equal(screen.queryByRole("grid"), null);
});

test("an automatic run that is under way shows its candidates, the best first", () => {
  const candidates = {
    summary: "2 candidates tried, 1 more under way",
    columns: ["model", "state", "val_mae", "folds", "training time"],
    rows: [
      ["forest", "complete", "12.3", "5 of 5", "3 s"],
      ["mlp", "under way", "", "2 of 5", "1 s"],
    ],
  };
  const { controller } = buildController({ run: buildRun({ candidates }) }, "wide", { tab: "result" });
  render(<App controller={controller} />);
  const shown = screen.getByRole("article", { name: "Candidates" });
  assert.match(shown.textContent, /1 more under way.*forest.*12\.3.*3 s/);
});

test("the model that was chosen is shown with the figures of what it does", async () => {
  const chosen = { model: "forest", metric: "r2", value: 0.8, baseline: 0, summary: ["forest"], columns: [], rows: [] };
  const candidates = { summary: "9 candidates tried", columns: ["model"], rows: [["forest"]] };
  const run = buildRun({ candidates, chosen: { ...chosen, figures: ["prediction_errors", "column_importance"] } });
  const { controller, requests } = buildController({ run }, "wide", { tab: "result" });
  render(<App controller={controller} />);
  await waitFor(() =>
    assert.deepEqual(
      requests.map(({ path }) => path),
      ["workbench/api/runs/a/figures/prediction_errors", "workbench/api/runs/a/figures/column_importance"],
    ),
  );
  assert.match(screen.getByRole("article", { name: "Candidates" }).textContent, /9 candidates tried/);
});

test("arrow keys move between tabs, and only the chosen one is in the order of focus", () => {
  const { controller, state } = buildController({ run: buildRun() });
  const { rerender } = render(<App controller={controller} />);
  fireEvent.keyDown(screen.getByRole("tablist"), { key: "ArrowRight" });
  assert.equal(state.view.tab, "throughput");
  rerender(<App controller={controller} />);
  const tabs = screen.getAllByRole("tab");
  assert.deepEqual(
    tabs.map((tab) => [tab.getAttribute("aria-selected"), tab.tabIndex]).filter(([selected]) => selected === "true"),
    [["true", 0]],
  );
  fireEvent.keyDown(screen.getByRole("tablist"), { key: "ArrowLeft" });
  rerender(<App controller={controller} />);
  fireEvent.keyDown(screen.getByRole("tablist"), { key: "ArrowLeft" });
  assert.equal(state.view.tab, "resources", "from the first tab to the last");
});

test("the status line reports the connection, and a message until it is dismissed", () => {
  const { controller, state } = buildController({ connection: "waiting" });
  const { rerender, container } = render(<StatusLine controller={controller} />);
  assert.match(container.textContent!, /not respond/);
  for (const [connection, words] of [
    ["polling", /blocked/],
    ["refused", /sign in/i],
  ] as const) {
    state.connection = connection;
    rerender(<StatusLine controller={controller} />);
    assert.match(container.textContent!, words);
  }
  state.connection = "live";
  controller.notify("stopped", "error");
  rerender(<StatusLine controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Dismiss" }));
  assert.equal(state.status, null);
});
