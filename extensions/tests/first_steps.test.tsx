import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { sourceOf } from "../src/lab/form_notebook";
import { Dialogs } from "../src/views/dialogs";
import { Runs } from "../src/views/runs";
import type { ExperimentFile } from "../src/types";
import { buildController } from "./view_builder";

const FILES: ExperimentFile[] = [
  { path: "mine/sweep.yaml", name: "sweep", kind: "experiment", help: "My first." },
  { path: "mine/tiers.yaml", name: "tiers", kind: "tiers" },
  { path: "first.ipynb", name: "first", kind: "notebook" },
  { path: "/lib/search_spaces/breast_cancer.yaml", name: "breast_cancer", kind: "example" },
  { path: "/lib/search_spaces/digits.yaml", name: "digits", kind: "example", help: "Handwritten digits." },
];

afterEach(cleanup);

async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  await new Promise(setImmediate);
}

async function beginners() {
  const built = buildController({ runs: { items: [], total: 0 } });
  const opened: string[] = [];
  Object.assign(built.controller.host, {
    openFile: (path: string) => opened.push(path),
    openForm: (path = "new") => opened.push(`form ${path}`),
  });
  built.reply(FILES);
  render(<Runs controller={built.controller} />);
  await settle();
  return { ...built, opened };
}

test("who has no runs starts an example with one button", async () => {
  const { requests, reply, state } = await beginners();
  assert.ok(screen.getByText("Handwritten digits."));
  assert.equal(document.querySelectorAll(".workbench-primary").length, 1, "it is the only primary action");
  reply({ run_id: "calm-owl-1", answer: "the run is starting" });
  fireEvent.click(screen.getByRole("button", { name: "Run an example" }));
  await settle();
  assert.deepEqual(requests.at(-1)!.body, {
    kind: "start",
    arguments: { path: "/lib/search_spaces/digits.yaml" },
  });
  assert.equal(state.view.run, "calm-owl-1");
});

test("why an example did not start is shown", async () => {
  const { reply } = await beginners();
  reply({ problem: "there is no memory left" }, 400);
  fireEvent.click(screen.getByRole("button", { name: "Run an example" }));
  await settle();
  assert.match(screen.getByRole("alert").textContent!, /no memory left/);
});

test("experiments, notebooks and the form are offered by their names", async () => {
  const { controller, opened } = await beginners();
  fireEvent.click(screen.getByRole("button", { name: "mine/sweep.yaml" }));
  assert.deepEqual(controller.dialog, { kind: "start", path: "mine/sweep.yaml" });
  fireEvent.click(screen.getByRole("button", { name: "first.ipynb" }));
  fireEvent.click(screen.getByRole("button", { name: "Fill in a form" }));
  fireEvent.click(screen.getByRole("button", { name: "mine/tiers.yaml" }));
  assert.deepEqual([controller.state.view.tab, controller.state.view.tiers], ["tiers", "mine/tiers.yaml"]);
  assert.deepEqual(opened, ["first.ipynb", "form new"]);
});

test("a long file name breaks between its words", async () => {
  await beginners();
  const name = screen.getByRole("button", { name: "mine/sweep.yaml" });
  assert.equal(name.innerHTML, "mine/<wbr>sweep.<wbr>yaml");
});

test("where no notebook can be opened, the code of the form is shown", async () => {
  const built = buildController({ runs: { items: [], total: 0 } });
  built.reply(FILES);
  render(<Runs controller={built.controller} />);
  await settle();
  assert.match(screen.getByRole("group", { name: "Python" }).textContent!, /wb\.app\(\)/);
  assert.ok(screen.getByText("first.ipynb"));
  assert.equal(screen.queryByRole("button", { name: "first.ipynb" }), null);
});

test("the dialog of Start begins with a chosen file, leaves notebooks out, and leads to the form", async () => {
  const { controller, reply } = buildController();
  const opened: (string | undefined)[] = [];
  controller.host.openForm = (path) => opened.push(path);
  controller.openDialog({ kind: "start", path: FILES[4].path });
  reply(FILES);
  render(<Dialogs controller={controller} />);
  await settle();
  const list = screen.getByLabelText<HTMLSelectElement>("Experiment file");
  assert.deepEqual(
    [...list.options].map((option) => option.text),
    ["mine/sweep.yaml", "breast_cancer (example)", "digits (example)"],
  );
  assert.equal(list.value, FILES[4].path);
  fireEvent.click(screen.getByRole("button", { name: "Edit in a form" }));
  assert.deepEqual(opened, [FILES[4].path]);
  assert.equal(controller.dialog, null);
});

test("a form in a new notebook shows the experiment of its file", () => {
  assert.match(sourceOf(), /wb\.app\(\)/);
  assert.match(sourceOf('a "b".yaml'), /wb\.app\("a \\"b\\"\.yaml"\)/);
});
