import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import type { DialogRequest } from "../src/controller";
import { Advice } from "../src/views/advice";
import { Dialogs } from "../src/views/dialogs";
import { buildCard, buildController, buildOffer, buildRun } from "./view_builder";

const SNIPPET = { command: "workbench extend a --trials 4", python: 'wb.attach("a").extend(trials=4)' };

beforeEach(() => mock.timers.enable({ apis: ["setTimeout"] }));
afterEach(() => {
  cleanup();
  mock.timers.reset();
});

function open(dialog: DialogRequest) {
  const built = buildController({ run: buildRun() });
  const view = render(<Dialogs controller={built.controller} />);
  const draw = () => view.rerender(<Dialogs controller={built.controller} />);
  built.controller.openDialog(dialog);
  draw();
  return { ...built, draw, container: view.container };
}

/** Lets answers arrive and be drawn. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  await new Promise(setImmediate);
}

function extendOffer() {
  return {
    ...buildOffer("extend", "Extend"),
    explanation: "Adds trials to the run.",
    arguments: { enqueue: null },
    fields: [
      { name: "trials", label: "Trials", value: "10", fallback: "10" },
      { name: "name", label: "Name", is_text: true },
      { name: "lr", label: "Rate", part_of: "settings" },
    ],
  };
}

function type(label: string, text: string): void {
  fireEvent.input(screen.getByLabelText(label), { target: { value: text } });
}

test("no dialog is shown until one is requested", () => {
  const { controller } = buildController();
  const { container } = render(<Dialogs controller={controller} />);
  assert.equal(container.childElementCount, 0);
});

test("all commands are listed with their Python", () => {
  open({ kind: "commands", offers: [buildOffer("stop", "Stop"), buildOffer("extend", "Extend")], title: "a" });
  assert.deepEqual(
    screen.getAllByRole("group").map((one) => [one.getAttribute("aria-label"), one.textContent]),
    [
      ["command: Stop", "workbench stop a"],
      ["Python: Stop", 'wb.attach("a").stop()'],
      ["command: Extend", "workbench extend a"],
      ["Python: Extend", 'wb.attach("a").extend()'],
    ],
  );
});

test("an action is sent with what was filled in, and the dialog closes", async () => {
  const { controller, requests, reply } = open({ kind: "offer", offer: extendOffer(), trial: null });
  reply({ answer: "Extended." });
  type("Trials", " 4 ");
  type("Name", "7");
  type("Rate", "0.1");
  await settle();
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  assert.deepEqual(requests, [
    {
      path: "workbench/api/actions",
      body: {
        kind: "extend",
        run: "a",
        arguments: { enqueue: null, trials: 4, name: "7", settings: { lr: 0.1 } },
      },
    },
  ]);
  assert.equal(controller.dialog, null);
  assert.equal(controller.state.status?.message, "Extended.");
});

test("an empty field counts as its fallback, or is left out", async () => {
  const { requests, reply } = open({ kind: "offer", offer: extendOffer(), trial: null });
  reply({ answer: "Extended." });
  type("Trials", "");
  await settle();
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  assert.deepEqual((requests[0].body as { arguments: unknown }).arguments, { enqueue: null, trials: 10, settings: {} });
});

test("a refusal is shown in the dialog, which stays open with what was typed", async () => {
  const { controller, reply } = open({ kind: "offer", offer: extendOffer(), trial: null });
  reply({ problem: "is 0", field: "trials", allowed: "at least 1", next_step: "Ask for more." }, 400);
  type("Trials", "0");
  await settle();
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  assert.match(screen.getByRole("alert").textContent!, /trials: is 0.*at least 1.*Ask for more/s);
  assert.equal(controller.dialog?.kind, "offer");
  assert.equal((screen.getByLabelText("Trials") as HTMLInputElement).value, "0");
  assert.ok(!(screen.getByRole("button", { name: "Extend" }) as HTMLButtonElement).disabled, "it can be sent again");
});

test("the command and the Python follow what is typed, after a pause", async () => {
  const { requests, reply, container } = open({ kind: "offer", offer: extendOffer(), trial: null });
  assert.match(container.textContent!, /workbench extend a/, "the offer's own until the server has answered");
  await settle();
  mock.timers.tick(300);
  await settle();
  requests.length = 0;
  reply(SNIPPET);
  type("Trials", "3");
  await settle();
  type("Trials", "4");
  await settle();
  mock.timers.tick(300);
  await settle();
  assert.deepEqual(
    requests.map(({ path, body }) => [path, (body as { arguments: { trials: number } }).arguments.trials]),
    [["workbench/api/snippets", 4]],
  );
  assert.match(container.textContent!, /workbench extend a --trials 4.*extend\(trials=4\)/s);
});

test("an action that only a user can do offers nothing but its command and its Python", () => {
  const offer = { ...buildOffer("replay", "Replay"), done_by: "nobody" as const, explanation: "Runs it again." };
  const { container } = open({ kind: "offer", offer, trial: 3 });
  assert.ok(screen.getByRole("heading", { name: "Replay: trial 3" }));
  assert.equal(screen.queryByRole("button", { name: "Replay" }), null);
  assert.ok(container.querySelector("details")!.open);
});

test("a dialog can be cancelled", () => {
  const { controller, requests } = open({ kind: "offer", offer: extendOffer(), trial: null });
  fireEvent.click(screen.getByRole("button", { name: "Cancel" }));
  assert.equal(controller.dialog, null);
  assert.deepEqual(requests, []);
});

const FILES = [
  { path: "digits.yaml", name: "digits" },
  { path: "text.yaml", name: "text" },
];

async function openStart(files = FILES) {
  const built = buildController({ run: buildRun() });
  built.reply(files);
  built.controller.openDialog({ kind: "start" });
  const view = render(<Dialogs controller={built.controller} />);
  await settle();
  assert.equal(built.requests.shift()!.path, "workbench/api/experiments");
  return { ...built, container: view.container };
}

test("a run is started from a chosen file with settings, a name and a cluster, and is opened", async () => {
  const { controller, state, requests, reply } = await openStart();
  reply({ run_id: "b", answer: "Started." });
  fireEvent.change(screen.getByLabelText("Experiment file"), { target: { value: "text.yaml" } });
  type("Settings", "training.epochs=3\n# slower\nsampler=random");
  type("Name", " mine ");
  type("Cluster", "http://head:8265");
  await settle();
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  assert.deepEqual(requests[0], {
    path: "workbench/api/actions",
    body: {
      kind: "start",
      arguments: {
        path: "text.yaml",
        settings: { "training.epochs": 3, sampler: "random" },
        name: "mine",
        address: "http://head:8265",
      },
    },
  });
  assert.equal(state.view.run, "b");
  assert.equal(controller.dialog, null);
});

test("where it is not certain which file advice belongs to, the user chooses", async () => {
  for (const files of [FILES.map((file) => ({ ...file, name: "other" })), [...FILES, ...FILES]]) {
    const run = buildRun({ name: "text", kind: "advice", card: buildCard() });
    const { controller, reply } = buildController({ run });
    controller.openDialog({ kind: "start", experiment: "text" });
    reply(files);
    render(<Dialogs controller={controller} />);
    await settle();
    assert.equal(screen.getByLabelText<HTMLSelectElement>("Experiment file").value, "");
    assert.ok(screen.getByText("Choose the file of text"));
    assert.ok(screen.getByRole<HTMLButtonElement>("button", { name: "Start" }).disabled);
    cleanup();
  }
});

test("advice starts the experiment of its name with what is advised, in place of what is searched", async () => {
  const run = buildRun({ name: "text", kind: "advice", card: buildCard(), params: ["lr"] });
  const { controller, reply } = buildController({ run });
  render(<Advice controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Start a run with it…" }));
  cleanup();
  reply(FILES);
  render(<Dialogs controller={controller} />);
  await settle();
  assert.equal(screen.getByLabelText<HTMLTextAreaElement>("Settings").value, "plan.workers=2\nsearch.lr=0.02");
  assert.equal(screen.getByLabelText<HTMLSelectElement>("Experiment file").value, "text.yaml");
});

test("the dialog closes at once, and returns with what was typed where the experiment is wrong", async () => {
  const { controller, reply, state } = await openStart();
  fireEvent.change(screen.getByLabelText("Experiment file"), { target: { value: "text.yaml" } });
  type("Settings", "training.epochs=three");
  await settle();
  reply({ problem: "'three' is not valid", field: "training.epochs" }, 400);
  fireEvent.submit(document.querySelector("form")!);
  assert.equal(controller.dialog, null);
  assert.equal(state.status!.message, "Starting text.yaml …");
  await settle();
  cleanup();
  reply(FILES);
  render(<Dialogs controller={controller} />);
  await settle();
  assert.equal(screen.getByLabelText<HTMLTextAreaElement>("Settings").value, "training.epochs=three");
  assert.equal(screen.getByLabelText<HTMLSelectElement>("Experiment file").value, "text.yaml");
  assert.match(screen.getAllByRole("alert").at(-1)!.textContent!, /training\.epochs: 'three' is not valid/);
  reply({ run_id: "b", answer: "the run is starting" });
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  assert.equal(state.view.run, "b");
});

test("settings that cannot be read are reported, and nothing is sent", async () => {
  const { requests } = await openStart();
  type("Settings", "epochs 3");
  await settle();
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  assert.match(document.body.textContent!, /“epochs 3” is not NAME=VALUE/);
  assert.deepEqual(requests, []);
});

test("a wrong address is reported below its field", async () => {
  const { reply } = await openStart();
  reply({ problem: "nothing answers at head:1", field: "address" }, 400);
  type("Cluster", "head:1");
  await settle();
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  const address = screen.getByLabelText("Cluster");
  assert.equal(address.getAttribute("aria-invalid"), "true");
  assert.match(address.closest(".workbench-field")!.textContent!, /nothing answers at head:1/);
});

test("a run on a cluster that is not known here yet leaves the answer of the cluster on the screen", async () => {
  const { controller, reply } = await openStart();
  reply({ answer: "Submitted as job raysubmit_1." });
  type("Cluster", "http://head:8265");
  await settle();
  fireEvent.submit(document.querySelector("form")!);
  await settle();
  assert.equal(controller.dialog?.kind, "start");
  assert.match(screen.getByText("Submitted as job raysubmit_1.").className, /notice/);
  assert.ok(screen.getByRole("button", { name: "Started" }));
});

test("a server without experiment files explains where to save one", async () => {
  await openStart([]);
  assert.ok(screen.getByText("No experiment files found"));
  assert.equal(document.querySelector("form"), null);
});
