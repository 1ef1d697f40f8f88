import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { AdvicePart } from "../src/forms/advice_part";
import { App } from "../src/forms/app";
import { AsyncResult } from "../src/forms/async_result";
import { DataPart } from "../src/forms/data_part";
import { Files } from "../src/forms/files";
import { ModelPart } from "../src/forms/model_part";
import { ResultPart } from "../src/forms/result_part";
import { RunPart, StartButton } from "../src/forms/run_part";
import { Texts } from "../src/forms/text_editors";
import { WhatIf } from "../src/forms/what_if";
import type { PartName } from "../src/forms/message_types";
import { buildCard } from "./view_builder";
import { buildField, buildForm, buildState } from "./fake_kernel";
import { enter, input } from "./form_inputs";

const CONFIRMED = { message: "Exported to best." };
const PARTS: PartName[] = ["model", "data", "space", "advice", "run", "result"];
const AROUND = { runId: "", themeName: "light" };

beforeEach(() => mock.timers.enable({ apis: ["setTimeout", "setInterval"] }));
afterEach(() => {
  cleanup();
  mock.timers.reset();
});

test("the advice is applied and the run started by one button", () => {
  const apply = [
    { path: "plan.workers", label: "plan: workers", now: 1, value: 8, reason: null, removals: ["search.workers"] },
  ];
  const { kernel, form } = buildForm({}, { advice: { card: buildCard(), figures: [], apply, controls: [] } });
  let shown = "advice";
  render(<AdvicePart form={form} themeName="light" onStart={() => (shown = "run")} />);
  fireEvent.click(screen.getByRole("button", { name: "Apply and start" }));
  const [edited] = kernel.messages("edit");
  assert.deepEqual([edited.changes, edited.removals], [[["plan.workers", 8]], ["search.workers"]]);
  assert.deepEqual([kernel.last.topic, shown], ["start", "run"]);
});

test("the advice is applied in part", async () => {
  const setting = { now: 1, value: 8, reason: null };
  const advice = {
    card: buildCard(),
    figures: [],
    apply: [
      { ...setting, path: "plan.workers", label: "plan: workers", removals: ["search.workers"] },
      { ...setting, path: "training.lr", label: "training: lr", removals: [] },
    ],
    controls: [],
  };
  const { kernel, form } = buildForm({}, { advice });
  render(<AdvicePart form={form} themeName="light" />);
  fireEvent.click(screen.getByRole("checkbox", { name: "Apply training: lr" }));
  await Promise.resolve();
  fireEvent.click(screen.getByRole("button", { name: "Apply 1 of 2" }));
  const [{ changes, removals }] = kernel.messages("edit");
  assert.deepEqual([changes, removals], [[["plan.workers", 8]], ["search.workers"]]);
});

test("a value typed over the advised one is applied, also when the form was drawn again meanwhile", async () => {
  const apply = ["plan.workers", "training.lr"].map((path) => ({
    path,
    label: path,
    now: 1,
    value: 8,
    reason: null,
    removals: [],
  }));
  const { kernel, form } = buildForm({}, { advice: { card: buildCard(), figures: [], apply, controls: [] } });
  const { rerender } = render(<AdvicePart form={form} themeName="light" />);
  fireEvent.input(input("Value of plan.workers"), { target: { value: "4" } });
  rerender(<AdvicePart form={form} themeName="light" />);
  fireEvent.input(input("Value of training.lr"), { target: { value: " " } });
  await Promise.resolve();
  assert.deepEqual(
    ["plan.workers", "training.lr"].map((path) => input(`Value of ${path}`).value),
    ["4", " "],
  );
  fireEvent.click(screen.getByRole("button", { name: "Apply all" }));
  assert.deepEqual(
    kernel.messages("edit")[0].changes,
    [
      ["plan.workers", 4],
      ["training.lr", 8],
    ],
    "an empty field takes the advised value",
  );
});

test("advice is measured only for a valid experiment", () => {
  const { kernel, form } = buildForm();
  const { rerender } = render(<AdvicePart form={form} themeName="light" />);
  fireEvent.submit(document.querySelector("form")!);
  assert.deepEqual(kernel.last.arguments, { measure: true, time: "1m", objective: "time" });
  kernel.emit(buildState({ revision: 2, hash: null }));
  rerender(<AdvicePart form={form} themeName="light" />);
  assert.ok((screen.getByRole("button", { name: /Measure/ }) as HTMLButtonElement).disabled);
});

test("a what-if query follows its controls, and shows intervals or why there is none", () => {
  const unknown = { value: null, message: "no training reached the target" };
  const what_if = {
    samples_per_s: { value: 2000, low: 1500, high: 2500 },
    step_time_s: { value: 0.01 },
    memory_bytes: { value: 2 ** 30 },
    time_to_target_s: unknown,
    fits: false,
  };
  const control = buildField({
    path: "workers",
    label: "Workers",
    kind: "choice",
    choices: ["auto", 2],
    default: "auto",
  });
  const { kernel, form } = buildForm({}, { what_if });
  const { container } = render(<WhatIf form={form} controls={[control]} />);
  fireEvent.change(screen.getByRole("combobox", { name: "Workers" }), { target: { value: "2" } });
  mock.timers.tick(300);
  assert.deepEqual(kernel.last.arguments, { workers: 2 });
  assert.match(container.textContent!, /1,?500 to 2,?500/);
  assert.match(container.textContent!, /no training reached the target/);
  assert.match(container.textContent!, /does not fit/);
});

test("the data is summarized: split, classes and samples", () => {
  const data = {
    name: "digits",
    task: "classification",
    sizes: { train: 80, validation: 20, test: null },
    input_shape: [8, 8],
    class_names: ["zero", "one"],
    class_counts: [60, 20],
    samples: [{ kind: "row" as const, cells: { width: 1.5 }, target: 1 }],
    load_samples_per_s: 100,
    needed_samples_per_s: 200,
    warnings: ["some rows are empty"],
  };
  const { kernel, form } = buildForm({ document: { data: "digits" } });
  const { container, rerender } = render(<DataPart form={form} />);
  const answer = () => {
    mock.timers.tick(300);
    kernel.emit({ type: "answer", topic: "data", query: kernel.last.query, status: "done", result: data });
    rerender(<DataPart form={form} />);
  };
  answer();
  assert.match(container.textContent!, /some rows are empty.*8 × 8.*2 times too slow.*train80/s);
  assert.match(container.textContent!, /zero60 · 75%/);
  assert.ok(screen.getByRole("rowheader", { name: "one" }));

  kernel.emit(buildState({ revision: 2, document: { data: "text" } }));
  rerender(<DataPart form={form} />);
  assert.doesNotMatch(container.textContent!, /train80/, "an earlier summary never stands beside other data");
  answer();
  assert.match(container.textContent!, /train80/);
  const problems = [{ problem: "the path a.csv does not exist", field: "data.path" }];
  kernel.emit(buildState({ revision: 3, document: { data: "text" }, problems }));
  rerender(<DataPart form={form} />);
  assert.doesNotMatch(container.textContent!, /Contents|train80/, "nor beside data that is wrong");
});

test("an example is run with one button, as long as nothing was changed", () => {
  const model = { get: () => "", on: () => undefined, off: () => undefined, send: () => undefined } as never;
  const shown = { model, parts: PARTS, around: AROUND };
  const example = { name: "digits", help: "handwritten digits." };
  const { kernel, form } = buildForm({ example });
  const { rerender } = render(<App form={form} {...shown} />);
  fireEvent.click(screen.getByRole("button", { name: "Run an example" }));
  assert.deepEqual(kernel.messages("preset"), [{ type: "preset", name: "digits" }]);
  assert.equal(kernel.last.topic, "start");
  rerender(<App form={form} {...shown} />);
  assert.equal(screen.getByRole("tab", { name: "Run" }).getAttribute("aria-selected"), "true");
  assert.equal(screen.queryByRole("button", { name: "Run an example" }), null);
});

test("a model is chosen from the offered ones, and replaces a train function", () => {
  const models = [{ name: "mlp", help: "A network of `Linear` layers." }];
  const { kernel, form } = buildForm({ models, document: { train: "m:f" } });
  render(<ModelPart form={form} onSearch={() => undefined} />);
  const offered = screen.getByRole("button", { name: /mlp/ });
  assert.equal(offered.querySelector("code")!.textContent, "Linear");
  fireEvent.click(offered);
  const [{ changes, removals }] = kernel.messages("edit");
  assert.deepEqual([changes, removals], [[["model", "mlp"]], ["train"]]);
});

test("a model is shown with its layers, its memory and its problems", () => {
  const layer = { name: "fc", kind: "Linear", depth: 0, output_shape: [10], num_parameters: 650, shares: "" };
  const model = {
    layers: [layer],
    num_parameters: 650,
    flops_per_sample: null,
    memory: { micro_batch: 64, bytes: 2 ** 20, parts: { activations: 2 ** 20 }, fits: true },
    problems: [{ problem: "too few", field: "model" }],
  };
  const { form } = buildForm({ document: { model: "mlp", data: "digits" } }, { model });
  const { container } = render(<ModelPart form={form} onSearch={() => undefined} />);
  assert.match(screen.getByRole("row", { name: /fc/ }).textContent!, /Linear10650/);
  assert.match(container.textContent!, /Too few/);
  assert.match(container.textContent!, /at 64 samples1(\.0)? MiB/);
});

test("a run starts only without problems, and on the chosen cluster", () => {
  const notes = ["budget.trials: 5 trials cannot train the population"];
  const preflight = {
    lines: ["2 GPUs"],
    notes,
    problems: [],
    forecast: ["trials take about 1 h"],
    duration: "about 1 h",
  };
  const { kernel, form } = buildForm({}, { preflight });
  const begun: string[] = [];
  const part = () => (
    <>
      <StartButton form={form} modelCheck="unknown" onStart={() => begun.push("run")} />
      <RunPart form={form} />
    </>
  );
  const { rerender } = render(part());
  assert.equal(screen.getByText("about 1 h").title, "trials take about 1 h");
  assert.ok(screen.getByText("trials take about 1 h"));
  assert.ok(screen.getByText(/cannot train the population/));
  fireEvent.click(screen.getByRole("radio", { name: /cluster/ }));
  enter(screen.getByLabelText(/Address/), "http://head:8265");
  assert.deepEqual(kernel.messages("address"), [{ type: "address", address: "http://head:8265" }]);
  fireEvent.click(screen.getByRole("button", { name: "Start the run" }));
  assert.equal(kernel.last.topic, "start");
  assert.deepEqual(begun, ["run"]);
  kernel.emit(buildState({ revision: 2, hash: null }));
  rerender(part());
  assert.ok((screen.getByRole("button", { name: /Start/ }) as HTMLButtonElement).disabled);
});

const CHANNEL = { send: () => undefined, on: () => undefined, off: () => undefined };

test("a start that the hardware refuses says why beside the button", () => {
  const problem = { problem: "a trial needs 64 CPUs, and this machine has 2", field: "plan.workers" };
  const { form } = buildForm(
    {},
    { preflight: { lines: [], notes: [], problems: [problem], forecast: [], duration: "" } },
  );
  render(<StartButton form={form} modelCheck="built" onStart={() => undefined} />);
  const button = screen.getByRole<HTMLButtonElement>("button", { name: "Start the run" });
  assert.ok(button.disabled);
  const why = document.getElementById(button.getAttribute("aria-describedby")!)!;
  assert.match(why.textContent!, /plan\.workers: .*needs 64 CPUs/);
});

test("a value without which the model cannot be built is searched with one click", () => {
  const document = { model: "embedded:Net@ab", data: "digits" };
  const { kernel, form } = buildForm({ document });
  form.query("model");
  const problem = { problem: "Net needs hidden, which the configuration does not set", field: "model.hidden" };
  kernel.emit({ type: "answer", topic: "model", query: kernel.last.query, status: "failed", problem });
  const seen: string[] = [];
  render(<ModelPart form={form} onSearch={() => seen.push("space")} />);
  fireEvent.click(screen.getByRole("button", { name: "Search hidden" }));
  assert.equal((kernel.messages("edit")[0].changes as [string, unknown][])[0][0], "search.hidden");
  assert.deepEqual(seen, ["space"]);
});

const ROW = { trial: 3, state: "complete", values: { loss: 0.25 }, params: { lr: 0.1 }, duration_s: 60 };

test("a result shows the leaderboard, exports the best trial and adds trials", () => {
  const result = {
    run_id: "swift-otter",
    state: "complete",
    counts: "3 complete",
    metric: "loss",
    best: ROW,
    default_comparison: { words: "nobody tried it", default: null, enqueue: { lr: 1 } },
    leaderboard: [ROW],
    commands: [],
  };
  const { kernel, form } = buildForm({}, { result, export: CONFIRMED });
  const { container } = render(<ResultPart form={form} runId="swift-otter" onOtherData={() => undefined} />);
  assert.match(screen.getByRole("row", { name: /complete/ }).textContent!, /30?.*0\.25/);
  assert.match(container.textContent!, /Exported to best/);
  const [exporting, extending] = container.querySelectorAll("form");
  fireEvent.submit(exporting);
  assert.deepEqual([kernel.last.topic, kernel.last.arguments], ["export", { run_id: "swift-otter", to: "best" }]);
  fireEvent.submit(extending);
  assert.deepEqual([kernel.last.topic, kernel.last.arguments], ["extend", { run_id: "swift-otter", trials: 10 }]);
});

test("a text is sent after a pause, counts as not applied until then, and can be discarded", () => {
  const { kernel, form } = buildForm();
  const { rerender } = render(<Texts form={form} />);
  const area = screen.getByRole("textbox", { name: /YAML/ });
  fireEvent.input(area, { target: { value: "name: [" } });
  rerender(<Texts form={form} />);
  assert.equal(form.unappliedText, "yaml");
  mock.timers.tick(1000);
  assert.deepEqual(kernel.messages("yaml"), [{ type: "yaml", text: "name: [" }]);
  const wrong = (field: string) => ({ problem: `${field} is wrong`, field, allowed: null, next_step: null });
  const yaml_problems = [wrong("training.epochs"), wrong("budget.trials")];
  kernel.emit(buildState({ revision: 2, answered: kernel.last.number, yaml: "name: [", yaml_problems }));
  rerender(<Texts form={form} />);
  for (const { problem } of yaml_problems) screen.getByText(new RegExp(problem));
  fireEvent.click(screen.getByRole("button", { name: /Discard|Give up/ }));
  assert.deepEqual(kernel.messages("yaml").at(-1), { type: "yaml", text: "" });
});

test("a file is saved under its name, and a refusal keeps the dialog open", () => {
  const { kernel, form } = buildForm({ document: { name: "digits" } });
  const { rerender } = render(<Files form={form} />);
  fireEvent.click(screen.getByRole("button", { name: "Save …" }));
  fireEvent.submit(document.querySelector("dialog form")!);
  assert.deepEqual(kernel.messages("save"), [{ type: "save", path: "digits.yaml", overwrite: false }]);
  const { number } = kernel.last;
  const problem = { problem: "digits.yaml already exists", field: "path" };
  kernel.emit({ type: "answer", topic: "file", query: number, status: "failed", problem });
  kernel.emit(buildState({ revision: 2, answered: number }));
  rerender(<Files form={form} />);
  assert.match(document.querySelector("dialog")!.textContent!, /already exists/);
});

test("a query that fails says why, and can be repeated", () => {
  const { kernel, form } = buildForm();
  let retries = 0;
  form.query("model");
  const shown = () => <AsyncResult answer={form.answer("model")} working="Building …" onRetry={() => (retries += 1)} />;
  const { rerender, container } = render(shown());
  assert.match(container.textContent!, /Building/);
  kernel.emit({
    type: "answer",
    topic: "model",
    query: kernel.last.query,
    status: "failed",
    problem: { problem: "no memory" },
  });
  rerender(shown());
  assert.match(screen.getByRole("alert").textContent!, /No memory/);
  fireEvent.click(screen.getByRole("button", { name: "Try again" }));
  assert.equal(retries, 1);
});

function app(form: Parameters<typeof App>[0]["form"]) {
  return <App form={form} model={CHANNEL} parts={PARTS} around={AROUND} />;
}

test("tabs count the problems of their part, are moved between by keys, and the count leads to the first", () => {
  const problems = [{ problem: "is wrong", field: "search.lr", allowed: null, next_step: null }];
  const { form } = buildForm({ problems, hash: null });
  render(app(form));
  assert.ok(screen.getByRole("tab", { name: /Search space.*1 problem/ }));
  fireEvent.keyDown(screen.getByRole("tablist", { name: /Parts/ }), { key: "End" });
  assert.equal(screen.getByRole("tab", { name: /Result/ }).getAttribute("aria-selected"), "true");
  fireEvent.click(screen.getByRole("button", { name: "1 problem" }));
  assert.equal(screen.getByRole("tab", { name: /Search space/ }).getAttribute("aria-selected"), "true");
});

test("a problem that no field shows stands above its part", () => {
  const problems = [{ problem: "is unknown", field: "model.depth", allowed: null, next_step: null }];
  const { form } = buildForm({ problems });
  render(app(form));
  assert.match(screen.getByRole("tabpanel", { name: /Model/ }).textContent!, /model\.depth: Is unknown/);
});

test("undo names what it undoes, and a lost kernel is reported", () => {
  const { kernel, form } = buildForm({ can_undo: true, undo_label: "Set Epochs" });
  const { rerender } = render(app(form));
  fireEvent.click(screen.getByRole("button", { name: "Undo: Set Epochs" }));
  assert.equal(kernel.last.type, "undo");
  kernel.disconnect();
  form.edit([["name", "a"]], "Name");
  rerender(app(form));
  assert.match(screen.getAllByRole("alert")[0].textContent!, /Run the cell again/);
});
