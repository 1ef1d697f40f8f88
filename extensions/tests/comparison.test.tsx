import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/preact";
import { Curve } from "../src/curve";
import type { ComparisonState } from "../src/state";
import { subscriptionOf } from "../src/subscription";
import type { ComparedFact, ComparedRun } from "../src/types";
import { Comparison } from "../src/views/comparison";
import { buildController } from "./view_builder";

afterEach(cleanup);

function buildFact(part: ComparedFact["part"], name: string, cells: (string | null)[], best: number | null = null) {
  return { part, name, cells, differs: new Set(cells).size > 1 && part !== "result", best };
}

function buildComparison(metrics: string[]): ComparisonState {
  const runs = metrics.map((metric, index) => ({
    run_id: `r${index}`,
    label: `run ${index}`,
    metric,
    goal: "maximize",
  }));
  const facts = [
    buildFact("result", "best val_accuracy", ["0.91", "0.95"], 1),
    buildFact("best parameters", "lr", ["0.1", "0.1"]),
    buildFact("experiment", "training.epochs", ["12", "default"]),
    buildFact("experiment", "budget.trials", ["40", "40"]),
    buildFact("versions", "torch", ["2.13.0", "2.14.0"]),
  ];
  const update = { axis: "time", x_title: "run time", runs, metrics: ["val_accuracy", "loss"], facts };
  const curves = runs.map((run) => ({
    run: run as ComparedRun,
    curve: Curve.of(Float64Array.of(1, 2), Float64Array.of(0.1, 0.2)),
  }));
  return { update, curves } as unknown as ComparisonState;
}

test("the table shows results and what differs; the rest on request", () => {
  const compared = buildComparison(["val_accuracy", "val_accuracy"]);
  const { controller, state } = buildController({ compared }, "wide", { compared: ["r0", "r1"] });
  const { rerender } = render(<Comparison controller={controller} />);
  const rows = () => screen.getAllByRole("rowheader").map((cell) => cell.textContent);
  const expected = ["best val_accuracy", "lr", "training.epochs≠", "torch≠"];
  assert.deepEqual(
    rows().filter((text) => !["Result", "Best parameters", "Experiment", "Versions"].includes(text!)),
    expected,
  );
  assert.match(screen.getByText("0.95").closest("td")!.textContent!, /★/);
  fireEvent.click(screen.getByRole("checkbox", { name: /that are the same \(1\)/ }));
  rerender(<Comparison controller={controller} />);
  assert.ok(rows().includes("budget.trials"));
  fireEvent.click(screen.getByRole("button", { name: "Do not compare run 0" }));
  assert.deepEqual(state.view.compared, ["r1"]);
});

test("what stands where an experiment sets nothing is explained, if it stands anywhere", () => {
  const compared = buildComparison(["val_accuracy", "val_accuracy"]);
  const { controller, state } = buildController({ compared }, "wide", { compared: ["r0", "r1"] });
  render(<Comparison controller={controller} />);
  assert.ok(screen.getByText("default: the setting has its default"));
  const fact = { ...buildFact("experiment", "search.lr", ["0.1 to 1", null]), part: "experiment" as const };
  const update = { ...compared.update, facts: [...compared.update.facts, fact] };
  void act(() => {
    state.compared = { ...compared, update };
  });
  assert.ok(screen.getByText("default: the setting has its default; –: the run has no such setting"));
});

test("runs with different objectives stand in charts of their own", () => {
  const { controller } = buildController({ compared: buildComparison(["val_accuracy", "loss"]) }, "wide", {
    compared: ["r0", "r1"],
  });
  render(<Comparison controller={controller} />);
  assert.deepEqual(
    screen.getAllByRole("img", { name: /of 1 run/ }).map((one) => one.getAttribute("aria-label")),
    ["best val_accuracy so far of 1 run, run time", "best loss so far of 1 run, run time"],
  );
});

test("runs are added by a pattern, and the chosen metric and axis are subscribed to", async () => {
  const { controller, state, requests, reply } = buildController({}, "wide", { compared: ["r0"], tab: "compare" });
  const { rerender } = render(<Comparison controller={controller} />);
  reply(["r2", "r0", "r1"]);
  const field = screen.getByRole("combobox", { name: "Add runs by name or pattern" });
  fireEvent.input(field, { target: { value: "r*" } });
  fireEvent.submit(document.querySelector("form")!);
  await waitFor(() => assert.deepEqual(state.view.compared, ["r0", "r2", "r1"]));
  assert.match(requests[0].path, /matching-runs\?pattern=r\*$/);
  reply([]);
  fireEvent.input(field, { target: { value: "none-*" } });
  fireEvent.submit(document.querySelector("form")!);
  await waitFor(() => assert.match(screen.getByRole("status").textContent!, /No run matches “none-\*”/));
  rerender(<Comparison controller={controller} />);
  fireEvent.change(screen.getByRole("combobox", { name: "Axis of the comparison" }), { target: { value: "cost" } });
  const window = { offset: 0, limit: 40 };
  assert.deepEqual(subscriptionOf(state, "wide", window, window).compared, {
    runs: ["r0", "r2", "r1"],
    metric: "",
    axis: "cost",
  });
});
