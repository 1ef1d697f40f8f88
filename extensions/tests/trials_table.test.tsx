import "./dom";
import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/preact";
import { Dialogs } from "../src/views/dialogs";
import { moved, shownKeys } from "../src/views/column_menu";
import { Trials } from "../src/views/trials";
import { buildController, buildOffer, buildRun, buildTable } from "./view_builder";

afterEach(cleanup);

const LABELS = () => screen.getAllByRole("columnheader").map((one) => one.textContent!.replace(/[▴▾]/, ""));

test("the table sorts the best values first, then the other way round", () => {
  const { controller, state } = buildController({ run: buildRun(), table: buildTable() });
  const { rerender } = render(<Trials controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "val_accuracy" }));
  assert.deepEqual([state.view.table.sort, state.view.table.descending], ["value:val_accuracy", true]);
  rerender(<Trials controller={controller} />);
  const header = screen.getByRole("columnheader", { name: /val_accuracy/ });
  assert.equal(header.getAttribute("aria-sort"), "descending");
  fireEvent.click(within(header).getByRole("button"));
  assert.equal(state.view.table.descending, false);
  fireEvent.click(screen.getByRole("button", { name: "lr" }));
  assert.equal(state.view.table.descending, false, "parameters begin with the smallest");
});

test("the direction of a column is what it declares, never a guess from its name", () => {
  const columns = [
    ...buildTable().columns,
    { key: "value:f1", label: "f1", kind: "value" as const, goal: "maximize" as const },
    { key: "value:f1_loss", label: "f1_loss", kind: "value" as const, goal: "minimize" as const },
    { key: "value:val_accuracy_gap", label: "val_accuracy_gap", kind: "value" as const },
  ];
  const { controller, state } = buildController({ run: buildRun(), table: buildTable({ columns }) });
  render(<Trials controller={controller} />);
  for (const [name, descending] of [
    ["f1", true],
    ["f1_loss", false],
    ["val_accuracy_gap", false],
  ] as const) {
    fireEvent.click(screen.getByRole("button", { name }));
    assert.deepEqual([state.view.table.sort, state.view.table.descending], [`value:${name}`, descending]);
  }
});

test("trials are filtered by state at once, and by text after a pause", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { controller, state } = buildController({ run: buildRun(), table: buildTable() });
  render(<Trials controller={controller} />);
  fireEvent.change(screen.getByRole("combobox", { name: "State of trials" }), { target: { value: "failed" } });
  assert.deepEqual(state.view.table.states, ["failed"]);
  fireEvent.input(screen.getByRole("searchbox", { name: "Filter trials" }), { target: { value: "oom" } });
  assert.equal(state.view.table.text, "");
  mock.timers.tick(300);
  assert.equal(state.view.table.text, "oom");
  mock.timers.reset();
});

test("what is chosen while a filter is typed stays", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { controller, state } = buildController({ run: buildRun(), table: buildTable() });
  const { rerender } = render(<Trials controller={controller} />);
  fireEvent.input(screen.getByRole("searchbox", { name: "Filter trials" }), { target: { value: "oom" } });
  fireEvent.click(screen.getByRole("button", { name: "Best first" }));
  rerender(<Trials controller={controller} />);
  mock.timers.tick(300);
  assert.deepEqual([state.view.table.text, state.view.table.sort], ["oom", "rank"]);
  mock.timers.reset();
});

test("a row selects its trial, and with a modifier adds it to the selection", () => {
  const { controller, state } = buildController({ run: buildRun(), table: buildTable() });
  render(<Trials controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Trial 2" }));
  assert.deepEqual([state.view.trial, state.view.chart.chosen], [2, [2]]);
  fireEvent.click(screen.getByRole("button", { name: "Trial 3" }), { ctrlKey: true });
  assert.deepEqual([state.view.trial, state.view.chart.chosen], [2, [2, 3]]);
});

test("the trial that was chosen by hand is marked", () => {
  const table = buildTable();
  table.rows[0].is_chosen = true;
  render(<Trials controller={buildController({ run: buildRun(), table }).controller} />);
  const [row] = screen.getAllByRole("row").slice(1);
  assert.ok(within(row).getByRole("img", { name: "chosen by hand" }));
  assert.equal(screen.getAllByRole("img", { name: "chosen by hand" }).length, 1);
});

test("a filter without matches can be cleared", () => {
  const table = { sort: "number", descending: false, text: "x", states: [], columns: [] };
  const { controller, state } = buildController({ table: buildTable({ rows: [], total: 0 }) }, "wide", { table });
  render(<Trials controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Show all" }));
  assert.equal(state.view.table.text, "");
});

test("columns without values are hidden until they are chosen, and their order is kept", () => {
  const table = buildTable();
  table.columns.push({ key: "progress:epoch", label: "epoch", kind: "progress", is_empty: true });
  const { controller, state } = buildController({ run: buildRun(), table });
  const { rerender } = render(<Trials controller={controller} />);
  assert.deepEqual(LABELS(), ["trial", "state", "val_accuracy", "lr"]);
  fireEvent.click(screen.getByRole("button", { name: /^Columns/ }));
  fireEvent.click(screen.getByRole("checkbox", { name: "epoch" }));
  rerender(<Trials controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Move lr to the left" }));
  rerender(<Trials controller={controller} />);
  assert.deepEqual(LABELS(), ["trial", "state", "lr", "val_accuracy", "epoch"]);
  assert.deepEqual(controller.subscription().table!.columns, [], "which columns are shown is no matter of the server");
  fireEvent.click(screen.getByRole("checkbox", { name: "val_accuracy" }));
  rerender(<Trials controller={controller} />);
  assert.deepEqual(LABELS(), ["trial", "state", "lr", "epoch"]);
  fireEvent.click(screen.getByRole("button", { name: "All with values" }));
  assert.deepEqual(state.view.table.columns, []);
});

test("a column moves by one place, and not beyond the ends", () => {
  assert.deepEqual(moved(["a", "b", "c"], "c", -1), ["a", "c", "b"]);
  assert.deepEqual(moved(["a", "b"], "a", -1), ["a", "b"]);
  assert.deepEqual(shownKeys(buildTable(), ["param:gone"]), ["value:val_accuracy", "param:lr"]);
});

for (const layout of ["wide", "panel", "output"] as const) {
  test(`the best trial stands first in sight, but not twice: ${layout}`, () => bestIsFirst(layout));
}

function bestIsFirst(layout: "wide" | "panel" | "output"): void {
  const table = buildTable();
  table.best = table.rows[1];
  const { controller } = buildController({ run: buildRun(), table }, layout);
  const { rerender } = render(<Trials controller={controller} />);
  assert.equal(screen.getAllByRole("button", { name: "Trial 2" }).length, 1);
  assert.equal(screen.getAllByRole("row").length, table.rows.length + 1);
  assert.ok(within(screen.getAllByRole("row")[1]).getByRole("button", { name: "Trial 2" }));
  controller.state.table = { ...table, rows: [table.rows[1]] };
  rerender(<Trials controller={controller} />);
  assert.equal(screen.getAllByRole("button", { name: "Trial 2" }).length, 1);
}

test("of repeated trials the mean stands above them, and each of the best configuration is marked", () => {
  const table = buildTable();
  table.rows = table.rows.map((row, index) => ({ ...row, is_best: index < 2 }));
  table.best = { ...table.rows[1], num_repeats: 2 };
  const { controller } = buildController({ run: buildRun(), table });
  render(<Trials controller={controller} />);
  assert.equal(screen.getAllByRole("button", { name: "Trial 2" }).length, 2, "its own values stand in their place");
  assert.ok(within(screen.getAllByRole("row")[1]).getByText("mean of 2"));
  assert.equal(screen.getAllByText("mean of 2").length, 1);
  assert.equal(screen.getAllByRole("img", { name: "best" }).length, 3);
});

test("the best come first by one button, and the table is saved as it is filtered", async () => {
  const { controller, state, requests, reply } = buildController({ run: buildRun(), table: buildTable() });
  const { rerender } = render(<Trials controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Best first" }));
  assert.equal(state.view.table.sort, "rank");
  controller.show({ table: { ...state.view.table, text: "lr < 0.01" } });
  rerender(<Trials controller={controller} />);
  reply({ problem: "there is no column 'lr'" }, 400);
  fireEvent.click(screen.getByRole("button", { name: "CSV" }));
  await waitFor(() => assert.equal(state.status?.message, "there is no column 'lr'"));
  assert.equal(requests[0].path, "workbench/api/runs/a/trials.csv");
  assert.equal((requests[0].body as { text: string }).text, "lr < 0.01");
});

test("what is wrong with a filter stands below it, in place of the rows of the filter before", () => {
  const problem = { problem: "there is no column 'speed'", field: "table.text", allowed: "lr" };
  const { controller } = buildController({ run: buildRun(), table: buildTable(), problem });
  render(<Trials controller={controller} />);
  assert.match(screen.getByRole("alert").textContent!, /there is no column 'speed'.*Allowed: lr/s);
  assert.equal(screen.queryByRole("table"), null);
});

test("a parameter with choices is chosen from a list", () => {
  const fields = [{ name: "width", part_of: "params", label: "width", value: "8", choices: ["8", "16"] }];
  const { controller } = buildController({ run: buildRun() });
  controller.openDialog({ kind: "offer", offer: { ...buildOffer("enqueue", "Add a trial"), fields }, trial: null });
  render(<Dialogs controller={controller} />);
  const options = within(screen.getByRole("combobox", { name: "width" })).getAllByRole("option");
  assert.deepEqual(
    options.map((one) => (one as HTMLOptionElement).value),
    ["", "8", "16"],
  );
});
