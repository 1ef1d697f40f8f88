import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/preact";
import { Head } from "../src/views/run_header";
import { buildController, buildOffer, buildRun } from "./view_builder";

afterEach(cleanup);

test("the header shows state, progress and best value, and a lost run as an error", () => {
  const { controller, state } = buildController({ run: buildRun() });
  const { rerender, container } = render(<Head controller={controller} />);
  assert.equal(screen.getByRole("progressbar").getAttribute("aria-valuenow"), "50");
  assert.match(container.textContent!, /running.*0\.97.*trial 2/s);
  state.run = buildRun({ state: "lost", message: "its driver no longer runs" });
  rerender(<Head controller={controller} />);
  assert.ok(container.querySelector(".workbench-notice-error")?.textContent?.includes("driver no longer runs"));
  state.run = null;
  state.problem = { problem: "there is no run a", next_step: "Choose another one." };
  rerender(<Head controller={controller} />);
  assert.match(container.textContent!, /there is no run a.*Choose another one/s);
});

test("a run that ended without a result states why, and offers more time first", () => {
  const offers = [buildOffer("report", "Report"), buildOffer("extend", "Extend")];
  const run = buildRun({ state: "complete", reason: "time", best: null, no_best: "No trial is complete.", offers });
  const { container } = render(<Head controller={buildController({ run }).controller} />);
  assert.match(container.textContent!, /best.*–No trial is complete\./s);
  assert.ok(screen.getByRole("button", { name: "Extend…" }));
  assert.equal(screen.queryByRole("button", { name: "Report…" }), null);
});

test("an action without a dialog shows that it is under way until the server has answered", async () => {
  const offers = [{ ...buildOffer("resume", "Resume"), asks_first: false }];
  const { controller, reply } = buildController({ run: buildRun({ state: "stopped", offers }) });
  reply({ run_id: "a", answer: "resumed" });
  render(<Head controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Resume" }));
  assert.equal((await screen.findByRole<HTMLButtonElement>("button", { name: "Resume …" })).disabled, true);
  assert.equal((await screen.findByRole<HTMLButtonElement>("button", { name: "Resume" })).disabled, false);
});

test("a run that has ended is summed up, with its next step as a button unless that stands above", () => {
  const offers = [buildOffer("report", "Report"), buildOffer("extend", "Extend")];
  const sentences = ["Trial 2 is the best: val_accuracy 0.97.", "It took 9 s for 3 trials."];
  const summary = { sentences, next_kind: "extend", next_lead: "extend it" };
  const run = buildRun({ state: "complete", offers, summary });
  const { controller, state } = buildController({ run });
  const { rerender } = render(<Head controller={controller} />);
  const region = screen.getByRole("region", { name: "Summary" });
  assert.match(region.textContent!, /Trial 2 is the best.*It took 9 s.*Next: extend it.*Extend…/s);
  state.run = { ...run, no_best: "No trial is complete." };
  rerender(<Head controller={controller} />);
  assert.equal(screen.getAllByRole("button", { name: "Extend…" }).length, 1);
});

test("only a run with a model leads to tiers", () => {
  for (const [kind, isThere] of [
    ["compress", true],
    ["report", false],
  ] as const) {
    const offers = [buildOffer(kind, "Do it"), buildOffer("pin", "Pin")];
    const { controller, state } = buildController({ run: buildRun({ state: "complete", offers }) }, "wide");
    const { unmount } = render(<Head controller={controller} />);
    fireEvent.click(screen.getByRole("button", { name: /More/ }));
    const tiers = screen.queryByRole("button", { name: "Tiers" });
    assert.equal(tiers !== null, isThere);
    if (tiers) {
      fireEvent.click(tiers);
      assert.equal(state.view.tab, "tiers");
    }
    unmount();
  }
});

test("a lead that may be luck is confirmed with one click", async () => {
  const confirm = { ...buildOffer("extend", "Confirm the best 3"), asks_first: false, arguments: { confirm: 3 } };
  const run = buildRun({ state: "complete", summary: { sentences: ["extend --confirm 3 would help."], confirm } });
  const { controller, requests, reply } = buildController({ run });
  reply({ run_id: "a", answer: "extended" });
  render(<Head controller={controller} />);
  assert.equal(screen.getByText("extend --confirm 3").localName, "code");
  fireEvent.click(screen.getByRole("button", { name: "Confirm the best 3" }));
  assert.deepEqual(requests[0].body, { kind: "extend", run: "a", arguments: { confirm: 3 } });
  assert.ok(await screen.findByRole("button", { name: "Confirm the best 3" }));
});

test("a run whose trials all failed leads to the traceback, and says why once", () => {
  const message = "all 3 trials failed: KeyError: 'lr'";
  const summary = { sentences: ["Every trial failed."], next_kind: "show", next_lead: "read it", next_trial: 2 };
  const failures = [
    { reason: "error", message: "KeyError: 'lr'", place: "/home/me/mods.py:6", num_trials: 1, trials: [2] },
  ];
  const run = buildRun({ state: "failed", reason: "failures", message, summary, failures });
  const { controller, state } = buildController({ run });
  const { container } = render(<Head controller={controller} />);
  assert.doesNotMatch(container.textContent!, /all 3 trials/);
  assert.equal(screen.getByText("mods.py:6").parentElement!.title, "/home/me/mods.py:6");
  fireEvent.click(within(screen.getByRole("region", { name: "Summary" })).getByRole("button"));
  assert.equal(state.view.trial, 2);
});

test("a notice that was read is put away, and that of another run is not", () => {
  const verdicts = ["trials waited for data"];
  const sentence = "Trials waited for data.";
  const run = buildRun({ run_id: "noticed", verdicts });
  const { controller, state } = buildController({ run });
  const { rerender } = render(<Head controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Dismiss this notice" }));
  assert.equal(screen.queryByText(sentence), null);
  state.run = buildRun({ run_id: "another", verdicts });
  rerender(<Head controller={controller} />);
  assert.ok(screen.getByText(sentence));
});

test("why a run was stopped stands in the header once", () => {
  const run = buildRun({ state: "stopped", reason: "person", message: "by the user" });
  const { controller } = buildController({ run });
  const { container } = render(<Head controller={controller} />);
  assert.match(screen.getByRole("status").textContent!, /stoppedby the user/);
  assert.equal(container.textContent!.match(/by the user/g)?.length, 1);
});

test("the header of a failed run states the first error, and each kind of failure with its trials", () => {
  const failures = [{ reason: "error", message: "ValueError: too wide", num_trials: 14, trials: [0, 1] }];
  const run = buildRun({ state: "failed", reason: "failures", message: "all 14 trials failed", progress: 0, failures });
  const { controller, state } = buildController({ run });
  const { rerender, container } = render(<Head controller={controller} />);
  assert.match(container.querySelector(".workbench-notice-error")!.textContent!, /all 14 trials failed/);
  assert.ok(container.querySelector(".workbench-progress-failed"));
  assert.match(screen.getByRole("table", { name: "Failures" }).textContent!, /error.*12 more.*too wide/s);
  fireEvent.click(screen.getByRole("button", { name: "Show trial 1" }));
  assert.equal(state.view.trial, 1);
  state.run = buildRun({ run_id: "b", failures });
  rerender(<Head controller={controller} />);
  assert.equal(container.querySelector("details")!.open, false);
});

test("several objectives have a front and no best trial", () => {
  const extremes = [
    { metric: "val_accuracy", value: 0.9, trial: 3 },
    { metric: "latency_s", value: 0.1, trial: 5 },
  ];
  const run = buildRun({ best: null, front: { num_trials: 4, extremes } });
  const { container } = render(<Head controller={buildController({ run }).controller} />);
  assert.match(
    container.textContent!,
    /on the front4 trials.*best val_accuracy0\.9trial 3.*best latency_s0\.1trial 5/s,
  );
});

test("a trial that was chosen by hand is named with what it gives up", () => {
  const words = "val_accuracy 0.85 (front's best 0.9)";
  const run = buildRun({ best: null, chosen_by_hand: { trial: 2, words } });
  render(<Head controller={buildController({ run }).controller} />);
  assert.equal(screen.getByText(/^Chosen by hand/).textContent, `Chosen by hand: trial 2, ${words}`);
});

test("the time that is left has an interval, without seconds where it is long", () => {
  for (const [left_low_s, left_s, left_high_s, shown] of [
    [60, 80.2, 101, "1 min 20 s1 min to 1 min 41 s"],
    [595, 708, 821, "11 min 48 s10 min to 14 min"],
  ] as const) {
    const run = buildRun({ left_s, left_low_s, left_high_s });
    const { container, unmount } = render(<Head controller={buildController({ run }).controller} />);
    assert.ok(container.textContent!.includes(`time left${shown}`), container.textContent!);
    unmount();
  }
});

test("an action that needs input opens a dialog, and all commands can be listed", () => {
  const { controller } = buildController({ run: buildRun({ offers: [buildOffer("extend", "Extend")] }) });
  render(<Head controller={controller} />);
  const choose = (name: RegExp) => {
    fireEvent.click(screen.getByRole("button", { name: /More/ }));
    fireEvent.click(screen.getByRole("button", { name }));
  };
  choose(/Extend/);
  assert.equal(controller.dialog?.kind, "offer");
  choose(/Commands/);
  assert.equal(controller.dialog?.kind, "commands");
});

test("the likeliest action stands alone, and in the output of a cell all others are a click away", () => {
  const offers = [
    buildOffer("set", "Change limits"),
    buildOffer("stop", "Stop", true),
    buildOffer("enqueue", "Add a trial"),
    { ...buildOffer("rename", "Rename"), done_by: "store" as const },
    { ...buildOffer("attach", "Follow"), done_by: "nobody" as const },
  ];
  const { controller } = buildController({ run: buildRun({ offers }) }, "output");
  const opened: unknown[] = [];
  controller.host.openRun = (...given) => void opened.push(given);
  render(<Head controller={controller} />);
  const names = () => screen.getAllByRole("button").map((one) => one.textContent);
  assert.deepEqual(names(), ["Stop…", "Open beside", "More ▾"]);
  fireEvent.click(screen.getByRole("button", { name: "Open beside" }));
  assert.deepEqual(opened, [["a", true]]);
  fireEvent.click(screen.getByRole("button", { name: /More/ }));
  assert.deepEqual(names().slice(3), ["Change limits…", "Add a trial…", "Rename…", "Commands"]);
  fireEvent.click(screen.getByRole("button", { name: "Add a trial…" }));
  assert.equal(controller.dialog?.kind, "offer");
});

test("a version of the code is accepted or reverted next to its decision, by name", async () => {
  const decision = {
    version: "wider.diff",
    baseline: "current",
    decision: "better" as const,
    words: "better: accept the candidate",
    effect: 0.05,
    low: 0.01,
    high: 0.09,
    verdict: null,
    by: null,
  };
  const { controller, state, requests, reply } = buildController({
    run: buildRun({ state: "complete", decisions: [decision] }),
  });
  const { rerender } = render(<Head controller={controller} />);
  const table = screen.getByRole("region", { name: "Decisions" });
  assert.match(table.textContent!, /wider\.diff.*better.*0\.05 \(0\.01 to 0\.09\)/s);
  reply({ run_id: "a", answer: "ann accepted wider.diff" });
  fireEvent.click(screen.getByRole("button", { name: "Accept wider.diff" }));
  await screen.findByRole("button", { name: "Accept wider.diff" });
  const body = requests[0]!.body as { kind: string; arguments: unknown };
  assert.deepEqual([body.kind, body.arguments], ["accept", { version: "wider.diff" }]);
  state.run = { ...state.run!, decisions: [{ ...decision, verdict: "accepted", by: "ann" }] };
  rerender(<Head controller={controller} />);
  assert.match(table.textContent!, /accepted by ann/);
  assert.equal(screen.queryByRole("button", { name: "Accept wider.diff" }), null);
  assert.ok(screen.getByRole("button", { name: "Revert wider.diff" }));
});
