import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/preact";
import { State } from "../src/state";
import { Dialogs } from "../src/views/dialogs";
import { Head } from "../src/views/run_header";
import { Runs } from "../src/views/runs";
import { pointsOf } from "../src/views/sparkline";
import { windowAround } from "../src/views/window";
import type { RunItem } from "../src/types";
import { buildController, buildOffer, buildRun } from "./view_builder";

afterEach(cleanup);

function item(number: number, change: Partial<RunItem> = {}): RunItem {
  return {
    run_id: `r${number}`,
    name: `run ${number}`,
    state: "complete",
    kind: "sweep",
    created_unix_s: 0,
    owner: null,
    progress: 1,
    best: "loss 0.1",
    num_trials: 3,
    ...change,
  };
}

test("the list shows pins, tags and how the best improved, and leaves room for what is not drawn", () => {
  const items = [item(3, { pinned: true, tags: ["good", "small"], spark: [0.5, 0.7, 0.9] }), item(4)];
  const { controller } = buildController({ runs: { items, offset: 40, total: 1000 } });
  const { container } = render(<Runs controller={controller} />);
  assert.ok(screen.getByText("1,000"));
  assert.ok(screen.getByRole("img", { name: "pinned" }));
  assert.deepEqual(
    [...container.querySelectorAll(".workbench-tag")].map((tag) => tag.textContent),
    ["good", "small"],
  );
  assert.equal(container.querySelectorAll(".workbench-spark").length, 1);
  const heights = [...container.querySelectorAll<HTMLElement>("li[aria-hidden]")].map((one) => one.style.blockSize);
  assert.deepEqual(heights, [`${40 * 68}px`, `${(1000 - 42) * 68}px`]);
});

test("runs of one name are told apart by the end of their ids and the version of their experiment", () => {
  const items = [
    item(1, { name: "digits", run_id: "digits-0abc", version: 2 }),
    item(2, { name: "digits", run_id: "digits-0abd", version: 1 }),
    item(3, { name: "alone", run_id: "alone-0abe" }),
  ];
  const { controller } = buildController({ runs: { items, offset: 0, total: 3 } });
  const { container } = render(<Runs controller={controller} />);
  const apart = [...container.querySelectorAll(".workbench-run-apart")].map((one) => one.textContent);
  assert.deepEqual(apart, ["0abc v2", "0abd v1"]);
  assert.match(screen.getByRole("button", { name: /0abc/ }).title, /version 2 of its experiment/);
});

test("the list counts candidates where trials are their folds, and has a word where there is no result", () => {
  const rows: [Partial<RunItem>, string, string][] = [
    [{ num_trials: 229, num_candidates: 46 }, "46 candidates", "loss 0.1"],
    [{ best: null, state: "failed" }, "3 trials", "no result"],
    [{ best: null, state: "running" }, "3 trials", "no result yet"],
    [{ best: null, kind: "advice" }, "advice", "ready to apply"],
    [{ best: null, kind: "advice", state: "failed" }, "advice", "no result"],
    // Its events are not read yet.
    [{ best: null, num_trials: null, state: "failed" }, "failed", "failed"],
  ];
  const items = rows.map(([change], number) => item(number, change));
  const { controller } = buildController({ runs: { items, offset: 0, total: items.length } });
  render(<Runs controller={controller} />);
  rows.forEach(([, count, result], number) => {
    const text = screen.getByRole("button", { name: new RegExp(`run ${number}`) }).textContent!;
    assert.ok(text.includes(count) && text.endsWith(result), text);
  });
});

test("runs are filtered by tag, by pins and by the archive, and the window begins anew", () => {
  const runs = { items: [item(1)], total: 300, tags: ["good"], num_pinned: 1, num_archived: 2 };
  const { controller, state } = buildController({ runs });
  const { rerender } = render(<Runs controller={controller} />);
  controller.showRunsWindow({ offset: 200, limit: 90 });
  fireEvent.change(screen.getByRole("combobox", { name: "Tag of runs" }), { target: { value: "good" } });
  assert.deepEqual([state.view.runs.tags, controller.subscription().runs!.offset], [["good"], 0]);
  rerender(<Runs controller={controller} />);
  fireEvent.click(screen.getByRole("checkbox", { name: "pinned (1)" }));
  assert.equal(controller.subscription().runs!.pinned, true);
  rerender(<Runs controller={controller} />);
  fireEvent.click(screen.getByRole("checkbox", { name: "archived (2)" }));
  assert.equal(state.view.runs.archive, "only");
  state.runs = { items: [], total: 0 };
  rerender(<Runs controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Show all" }));
  const { tags, archive, pinned } = state.view.runs;
  assert.deepEqual([tags, archive, pinned], [[], "without", false]);
});

test("runs are sorted, the list shows what they are sorted by, and a dense list has a line for each", () => {
  const items = [
    item(1, { elapsed_s: 7200, cost: 3, cost_text: "3.00 EUR" }),
    item(2, { elapsed_s: 90, cost: null, state: "failed" }),
  ];
  const { controller, state } = buildController({ runs: { items, offset: 0, total: 1000 } });
  const { container, rerender } = render(<Runs controller={controller} />);
  const sortBy = (value: string) => {
    fireEvent.change(screen.getByRole("combobox", { name: "Order of runs" }), { target: { value } });
    rerender(<Runs controller={controller} />);
    assert.equal(controller.subscription().runs!.sort, value);
    return items.map((one) => screen.getByRole("button", { name: new RegExp(one.name) }).textContent!);
  };
  assert.match(sortBy("time")[0]!, /2 h/);
  const [priced, unpriced] = sortBy("cost");
  assert.match(priced!, /3\.00 EUR/);
  assert.match(unpriced!, /no price/);
  fireEvent.click(screen.getByRole("button", { name: "Dense" }));
  rerender(<Runs controller={controller} />);
  assert.equal(state.view.denseRuns, true);
  assert.equal(container.querySelectorAll(".workbench-run-line").length, 2);
  assert.match(screen.getByRole("button", { name: /run 2/ }).textContent!, /^failedrun 20\.1no price$/);
  const [below] = container.querySelectorAll<HTMLElement>("li[aria-hidden]");
  assert.equal(below!.style.blockSize, `${998 * 28}px`);
});

test("what an earlier version kept of a view is completed", () => {
  const { view } = new State({ runs: { text: "a", states: [] } as never });
  assert.deepEqual(view.runs, { text: "a", states: [], tags: [], archive: "without", pinned: false, sort: "newest" });
});

test("a scrolled list asks for other rows only close to the end of those that it has", () => {
  const box = (scrollTop: number) => ({ scrollTop, clientHeight: 680 });
  assert.equal(windowAround(box(0), 68, 1000, { offset: 0, limit: 60 }), null);
  assert.equal(windowAround(box(35 * 68), 68, 1000, { offset: 0, limit: 60 }), null);
  assert.deepEqual(windowAround(box(45 * 68), 68, 1000, { offset: 0, limit: 60 }), { offset: 15, limit: 71 });
  assert.deepEqual(windowAround(box(990 * 68), 68, 1000, { offset: 0, limit: 60 }), { offset: 960, limit: 70 });
  assert.equal(windowAround(box(0), 68, 12, { offset: 0, limit: 60 }), null);
});

test("a curve without axes is a stair within its box", () => {
  assert.equal(pointsOf([1, 3]), "2,14 58,14 58,2");
  assert.equal(pointsOf([2, 2, 2]), "2,14 30,14 30,14 58,14 58,14");
});

test("tags are removed in the header, and notes are shown", async () => {
  const run = buildRun({ tags: ["good"], notes: "Before the fix.", pinned: true, archived: true });
  const { controller, requests, reply } = buildController({ run });
  reply({ run_id: "a", answer: "it has no tags", command: "", python: "" });
  render(<Head controller={controller} />);
  assert.ok(screen.getByText("Before the fix."));
  assert.ok(screen.getByText("archived"));
  assert.ok(screen.getByRole("img", { name: "pinned" }));
  fireEvent.click(screen.getByRole("button", { name: "Remove the tag good" }));
  assert.deepEqual(requests[0].body, { kind: "tag", run: "a", arguments: { remove: ["good"] } });
});

test("labels are changed from a menu, which Escape closes", () => {
  const rename = { ...buildOffer("rename", "Rename"), done_by: "store" as const };
  const { controller } = buildController({ run: buildRun({ offers: [buildOffer("extend", "Extend"), rename] }) });
  render(<Head controller={controller} />);
  assert.equal(screen.queryByRole("button", { name: "Rename…" }), null);
  const more = screen.getByRole("button", { name: /^More/ });
  fireEvent.click(more);
  assert.equal(document.activeElement, screen.getByRole("button", { name: "Extend…" }));
  fireEvent.keyDown(document.activeElement!, { key: "Escape" });
  assert.equal(screen.queryByRole("button", { name: "Rename…" }), null);
  fireEvent.click(more);
  fireEvent.click(screen.getByRole("button", { name: "Rename…" }));
  assert.equal(controller.dialog?.kind, "offer");
  assert.equal(screen.queryByRole("button", { name: "Rename…" }), null);
});

test("emptied notes are sent, and tags as a list", async () => {
  const fields = [
    { name: "text", label: "Notes", value: "old", is_text: true, is_long: true, may_be_empty: true },
    { name: "add", label: "Add", is_list: true },
  ];
  const { controller, requests } = buildController({ run: buildRun() });
  controller.openDialog({ kind: "offer", offer: { ...buildOffer("note", "Notes"), fields }, trial: null });
  render(<Dialogs controller={controller} />);
  assert.equal(screen.getByLabelText("Notes").tagName, "TEXTAREA");
  fireEvent.input(screen.getByLabelText("Notes"), { target: { value: "" } });
  fireEvent.input(screen.getByLabelText("Add"), { target: { value: "good, two words,," } });
  fireEvent.submit(document.querySelector("form")!);
  await waitFor(() => assert.ok(requests.length));
  assert.deepEqual(requests[0].body, {
    kind: "note",
    run: "a",
    arguments: { text: "", add: ["good", "two words"] },
  });
});

test("deleting shows what it frees, and nothing of the run stays", async () => {
  const known = { run: buildRun(), runs: { items: [item(1), item(2, { run_id: "a" })], total: 2 } };
  const { controller, state, requests, reply } = buildController(known, "wide", { compared: ["a", "r1"] });
  reply({ text: "3 files of 1 KiB, and 9 events of 2 KiB in the store" });
  const offer = { ...buildOffer("delete", "Delete", true), frees_space: true };
  controller.openDialog({ kind: "offer", offer, trial: null });
  render(<Dialogs controller={controller} />);
  await screen.findByText("Frees 3 files of 1 KiB, and 9 events of 2 KiB in the store.");
  assert.equal(requests[0].path, "workbench/api/runs/a/size");
  reply({ run_id: "a", answer: "freed", command: "", python: "" });
  fireEvent.submit(document.querySelector("form")!);
  await waitFor(() => assert.equal(state.view.run, null));
  assert.deepEqual([state.view.compared, state.runs!.items.map((one) => one.run_id)], [["r1"], ["r1"]]);
});
