import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/preact";
import { extentOf } from "../src/extent";
import { spanAt } from "../src/draw_lines";
import { machineDrawing, machineLines } from "../src/machine_drawing";
import { subscriptionOf } from "../src/subscription";
import type { NodeSeries, LogLine, TrialLog as Printed } from "../src/types";
import { Log } from "../src/views/log";
import { Resources } from "../src/views/resources";
import { TrialLog } from "../src/views/trial_log";
import { buildController, buildRun } from "./view_builder";

afterEach(cleanup);

const PRINTED: Printed = {
  trial: 2,
  rank: 0,
  text: "",
  ranks: [0, 1],
  lines: ["epoch 1 Loss 0.5", "epoch 2 loss 0.4"],
  num_bytes: 2048,
  num_found: null,
  searched: 1,
};

const NODE: NodeSeries = {
  node: "n",
  host: "alpha",
  time_s: [0, 10, 20],
  cpu: [0.1, null, 0.3],
  memory: [0.5, 0.5, 0.5],
  gpus: [{ index: 0, utilisation: [null, null, null], memory: [0.2, 0.2, 0.2] }],
  trials: [
    { trial: 3, state: "complete", begin_s: 1, end_s: 9, lane: 0 },
    { trial: 4, state: "running", begin_s: 5, end_s: null, lane: 1 },
  ],
  num_lanes: 2,
};

const WINDOW = { offset: 0, limit: 10 };

test("the log of a trial is searched as a whole, for each worker, and saved as a file", async () => {
  const { controller, state, requests, reply } = buildController({ trialLog: PRINTED }, "wide", { trial: 2 });
  const { rerender, container } = render(<TrialLog controller={controller} />);
  assert.equal(container.querySelector("pre")!.textContent, PRINTED.lines.join("\n"));
  fireEvent.input(screen.getByRole("searchbox", { name: "Search the log" }), { target: { value: "loss" } });
  await waitFor(() => assert.equal(state.view.trialLog.text, "loss"));
  fireEvent.change(screen.getByRole("combobox"), { target: { value: "1" } });
  assert.deepEqual(subscriptionOf(state, "wide", WINDOW, WINDOW).trial_log, { text: "loss", rank: 1 });
  state.trialLog = { ...PRINTED, rank: 1, text: "loss", num_found: 900, searched: 0.25 };
  rerender(<TrialLog controller={controller} />);
  assert.deepEqual(
    [...container.querySelectorAll("mark")].map((mark) => mark.textContent),
    ["Loss", "loss"],
  );
  assert.equal(
    screen.getByRole("status").textContent,
    "900 lines found; the last 2 are shown, 25% of the log searched",
  );
  reply({ problem: "worker 1 of trial 2 has no log" }, 404);
  fireEvent.click(screen.getByRole("button", { name: "Download" }));
  await waitFor(() => assert.equal(state.status?.message, "worker 1 of trial 2 has no log"));
  assert.equal(requests[0].path, "workbench/api/runs/a/trials/2/log?rank=1");
});

test("the log of another trial is not shown, and none where nothing was printed", () => {
  const { controller, state } = buildController({ trialLog: PRINTED }, "wide", { trial: 3 });
  const { container, rerender } = render(<TrialLog controller={controller} />);
  assert.equal(container.textContent, "");
  state.view = { ...state.view, trial: 2 };
  state.trialLog = { ...PRINTED, ranks: [], num_bytes: 0, lines: [] };
  rerender(<TrialLog controller={controller} />);
  assert.equal(container.textContent, "");
});

test("events stand in the order of their times, whenever they arrived", () => {
  const times = [10, 12, 11];
  const log = times.map((time_unix_s, seq): LogLine => ({
    seq,
    time_unix_s,
    level: "info",
    trial: null,
    text: `at ${time_unix_s}`,
    alert: false,
  }));
  const { controller } = buildController({ log });
  render(<Log controller={controller} />);
  const shown = screen.getAllByText(/^at /).map((line) => line.textContent);
  assert.deepEqual(shown, ["at 12", "at 11", "at 10"]);
});

test("events are searched, and saved as a file", async () => {
  const log = ["trial 1 complete", "Trial 2 failed"].map((text, seq): LogLine => ({
    seq,
    time_unix_s: seq,
    level: "info",
    trial: null,
    text,
  }));
  const { controller, requests } = buildController({ log, run: buildRun() });
  render(<Log controller={controller} />);
  fireEvent.input(screen.getByRole("searchbox"), { target: { value: "FAILED" } });
  await waitFor(() => assert.equal(screen.getAllByRole("listitem").length, 1));
  assert.ok(screen.getByText(/1 line found/));
  fireEvent.click(screen.getByRole("button", { name: "Download" }));
  assert.equal(requests[0].path, "workbench/api/runs/a/log");
  fireEvent.input(screen.getByRole("searchbox"), { target: { value: "nowhere" } });
  await waitFor(() => screen.getByText("No event matches"));
});

test("a machine over time has a line for all that was measured, and a bar for each trial", () => {
  const { controller } = buildController();
  assert.deepEqual(
    machineLines(NODE, controller.theme).map(({ label }) => label),
    ["CPU", "memory", "memory of GPU 0"],
  );
  const drawing = machineDrawing(NODE, controller.theme, ["memory"]);
  assert.deepEqual(
    drawing.lines.map(({ label }) => label),
    ["CPU", "memory of GPU 0"],
  );
  assert.deepEqual(
    drawing.spans!.bars.map(({ key, from, to }) => [key, from, to]),
    [
      ["3", 1, 9],
      ["4", 5, 20],
    ],
  );
  assert.deepEqual(extentOf(drawing), { x: [0, 20], y: [0, 1] });
  const canvas = { left: 0, top: 0, width: 200, height: 100, ratio: 1, x: [0, 20], y: [0, 1] } as never;
  assert.equal(spanAt(canvas, drawing.spans!, 20, 95)?.key, "3");
  assert.equal(spanAt(canvas, drawing.spans!, 150, 80)?.key, "4");
  assert.equal(spanAt(canvas, drawing.spans!, 20, 80), undefined);
  assert.equal(spanAt(canvas, drawing.spans!, 60, 20), undefined);
});

test("the machines of a run are shown over time, above what they do now", () => {
  const node = { node: "a", host: "here", state: "ok", num_cpus: 8, memory_bytes: 2 ** 30, trials: [], gpus: [] };
  const resources = { time_unix_s: 0, nodes: [node], of_run: null } as never;
  const { controller, state } = buildController({ resources, machines: { nodes: [NODE] } });
  const { rerender } = render(<Resources controller={controller} />);
  const chart = screen.getByRole("figure", { name: "Machine alpha over time" });
  assert.match(chart.textContent!, /CPU.*memory of GPU 0.*bars: 2 trials/);
  assert.ok(screen.getByText("This machine, now"));
  const toggle = screen.getByRole("button", { name: "CPU" });
  fireEvent.click(toggle);
  assert.equal(toggle.getAttribute("aria-pressed"), "false");
  state.machines = { nodes: [] };
  rerender(<Resources controller={controller} />);
  assert.equal(screen.queryByRole("heading", { name: /now/ }), null);
});
