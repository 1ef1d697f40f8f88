import "./dom";
import assert from "node:assert/strict";
import { afterEach, beforeEach, mock, test } from "node:test";
import { cleanup, fireEvent, render, screen, within } from "@testing-library/preact";
import { SectionFields } from "../src/forms/fields";
import { ListSection } from "../src/forms/list_section";
import { asSentence, capitalized } from "../src/forms/text_field";
import { SpacePart } from "../src/forms/space_part";
import { buildField, buildForm, buildRow, buildSection, buildState } from "./fake_kernel";
import { enter, input } from "./form_inputs";

beforeEach(() => mock.timers.enable({ apis: ["setTimeout", "setInterval"] }));
afterEach(() => {
  cleanup();
  mock.timers.reset();
});

test("a field keeps what is typed until the kernel has acknowledged it", () => {
  const section = buildSection("training", [buildField()]);
  const { kernel, form } = buildForm({ sections: [section] });
  const { rerender } = render(<SectionFields form={form} section={section} />);
  enter(input("Epochs"), "5");
  const { number } = kernel.last;
  assert.deepEqual(kernel.messages("edit"), [
    { type: "edit", changes: [["training.epochs", 5]], removals: [], label: "Set Epochs" },
  ]);
  kernel.emit(buildState({ revision: 2, answered: number - 1 }));
  rerender(<SectionFields form={form} section={section} />);
  assert.equal(input("Epochs").value, "5", "an earlier state does not replace it");
  const accepted = buildSection("training", [buildField({ value: 6 })]);
  kernel.emit(buildState({ revision: 3, answered: number, sections: [accepted] }));
  rerender(<SectionFields form={form} section={accepted} />);
  assert.equal(input("Epochs").value, "6", "the state that includes it does");
});

test("a path that is typed counts after a pause, and stays as it is typed until the field is left", () => {
  const path = (change = {}) => buildField({ path: "data.path", label: "Path", kind: "text", ...change });
  const section = buildSection("data", [path()]);
  const problem = { problem: "missing", field: "data.path", allowed: null, next_step: "Add path." };
  const { kernel, form } = buildForm({ sections: [section], problems: [problem] });
  const { rerender } = render(<SectionFields form={form} section={section} />);
  const field = input("Path");
  field.focus();
  fireEvent.focus(field);
  fireEvent.input(field, { target: { value: "house" } });
  mock.timers.tick(300);
  fireEvent.input(field, { target: { value: "houses" } });
  mock.timers.tick(699);
  assert.deepEqual(kernel.messages("edit"), []);
  mock.timers.tick(1);
  assert.deepEqual(kernel.messages("edit")[0].changes, [["data.path", "houses"]]);

  const taken = buildSection("data", [path({ value: "data/houses" })]);
  const problems = [{ ...problem, problem: "data/houses does not exist", next_step: null }];
  kernel.emit(buildState({ revision: 2, answered: kernel.last.number, sections: [taken], problems }));
  rerender(<SectionFields form={form} section={taken} />);
  assert.ok(screen.getByText("data/houses does not exist."));
  assert.equal(document.activeElement, field);
  assert.equal(field.value, "houses");
  fireEvent.blur(field);
  rerender(<SectionFields form={form} section={taken} />);
  assert.equal(input("Path").value, "data/houses");
  assert.equal(kernel.messages("edit").length, 1, "it is sent once");
});

test("what is typed and removed again does not hide a later value", () => {
  const section = buildSection("data", [buildField({ path: "data.path", label: "Path", kind: "text", value: "a" })]);
  const { kernel, form } = buildForm({ sections: [section] });
  const { rerender } = render(<SectionFields form={form} section={section} />);
  fireEvent.focus(input("Path"));
  fireEvent.input(input("Path"), { target: { value: "ab" } });
  fireEvent.input(input("Path"), { target: { value: "a" } });
  fireEvent.blur(input("Path"));
  const later = buildSection("data", [buildField({ path: "data.path", label: "Path", kind: "text", value: "c" })]);
  kernel.emit(buildState({ revision: 2, sections: [later] }));
  rerender(<SectionFields form={form} section={later} />);
  assert.equal(input("Path").value, "c");
});

test("an empty field removes the setting", () => {
  const section = buildSection("training", [buildField({ value: 3 })]);
  const { kernel, form } = buildForm({ sections: [section] });
  render(<SectionFields form={form} section={section} />);
  enter(input("Epochs"), " ");
  assert.deepEqual(kernel.messages("remove"), [{ type: "remove", path: "training.epochs" }]);
});

test("a problem is shown under its field, which is marked as invalid", () => {
  const section = buildSection("training", [buildField(), buildField({ path: "training.lr", label: "Rate" })]);
  const problems = [{ problem: "is -1", field: "training.epochs", allowed: "at least 1", next_step: null }];
  const { form } = buildForm({ sections: [section], problems });
  render(<SectionFields form={form} section={section} />);
  const described = input("Epochs").getAttribute("aria-describedby")!.split(" ")[0];
  assert.equal(document.getElementById(described)!.textContent, "Is -1. Allowed: at least 1.");
  assert.deepEqual(
    [input("Epochs"), input("Rate")].map((one) => one.getAttribute("aria-invalid")),
    ["true", null],
  );
});

test("what a problem begins with is capitalised where it is a word, not where it is a name or a path", () => {
  const problems = ["is -1", "missing", "houses.csv does not exist", "data/houses is empty"];
  assert.deepEqual(problems.map(asSentence).map(capitalized), [
    "Is -1.",
    "Missing.",
    "houses.csv does not exist.",
    "data/houses is empty.",
  ]);
});

test("a setting can be searched, which starts around its value", () => {
  const initial_search = { type: "int", low: 4, high: 16 };
  const section = buildSection("training", [buildField({ value: 8, low: 1, initial_search })]);
  const { kernel, form } = buildForm({ sections: [section] });
  const searched: string[] = [];
  render(<SectionFields form={form} section={section} onSearch={(name) => searched.push(name)} />);
  fireEvent.click(screen.getByRole("button", { name: "Search Epochs" }));
  assert.deepEqual(kernel.messages("edit")[0].changes, [["search.epochs", initial_search]]);
  assert.deepEqual(searched, ["epochs"]);
});

test("items of a list are added and removed, but not below the minimum", () => {
  const fields = [buildField({ path: "objectives.0.metric", label: "Metric", kind: "text", value: "loss" })];
  const items = { num_items: 1, min_items: 1, next: { metric: "val_accuracy" } };
  const section = buildSection("objectives", fields, { items });
  const { kernel, form } = buildForm({ sections: [section], document: { objectives: [{ metric: "loss" }] } });
  render(<ListSection form={form} section={section} list={items} />);
  assert.equal(screen.queryByRole("button", { name: "Remove objective 1" }), null);
  fireEvent.click(screen.getByRole("button", { name: "Add an objective" }));
  assert.deepEqual(kernel.messages("edit")[0].changes, [
    ["objectives", [{ metric: "loss" }, { metric: "val_accuracy" }]],
  ]);
});

test("metrics are offered in words, and written as they are reported", () => {
  const choices = ["val_accuracy", "train_loss"];
  const field = buildField({
    path: "objectives.0.metric",
    label: "Metric",
    kind: "text",
    value: "train_loss",
    choices,
  });
  const { form } = buildForm({ sections: [] });
  const { container } = render(<SectionFields form={form} section={buildSection("objectives", [field])} />);
  const options = [...container.querySelectorAll("option")].map((one) => [one.value, one.getAttribute("label")]);
  assert.deepEqual(options, [
    ["val_accuracy", "accuracy (validation)"],
    ["train_loss", "loss (training)"],
  ]);
});

const SEARCH = [
  buildRow({ low: 0.001, high: 0.1, log: true, written_as: { choices: { choices: [0.001, 0.1] } } }),
  buildRow({ name: "optimizer", kind: "choices", choices: ["sgd", "adamw"] }),
  buildRow({ name: "momentum", low: 0.8, high: 0.9, when: { optimizer: "sgd" } }),
];

test("a row of the search space changes bounds, scale, kind and name, and can be removed", () => {
  const { kernel, form } = buildForm({ search: SEARCH });
  render(<SpacePart form={form} />);
  enter(screen.getAllByLabelText("low")[0], "0.01");
  fireEvent.click(screen.getByRole("checkbox", { name: "lr logarithmic" }));
  fireEvent.change(screen.getByRole("combobox", { name: "Kind of lr" }), { target: { value: "choices" } });
  assert.deepEqual(
    kernel.messages("edit").map(({ changes, removals }) => [changes, removals]),
    [
      [
        [
          ["search.lr.low", 0.01],
          ["search.lr.type", "float"],
        ],
        [],
      ],
      [[["search.lr.type", "float"]], ["search.lr.log"]],
      [[["search.lr", { choices: [0.001, 0.1] }]], []],
    ],
  );
  enter(input("Name of lr"), "rate");
  assert.deepEqual(kernel.messages("rename"), [{ type: "rename", path: "search.lr", name: "rate" }]);
  fireEvent.click(screen.getByRole("button", { name: "Remove lr" }));
  assert.deepEqual(kernel.messages("remove"), [{ type: "remove", path: "search.lr" }]);
});

test("what the model reads is searched with one click", () => {
  const fields = [
    buildField({ path: "model.hidden", label: "hidden", initial_search: { type: "int", low: 16, high: 64 } }),
    buildField({ path: "model.depth", label: "depth", value: 3, initial_search: { type: "int", low: 1, high: 6 } }),
    buildField({ path: "model.lr", label: "lr" }),
  ];
  const { kernel, form } = buildForm({ search: SEARCH, sections: [buildSection("model", fields)] });
  render(<SpacePart form={form} />);
  const proposed = within(screen.getByRole("group", { name: "Parameters to search" }));
  assert.deepEqual(
    proposed.getAllByRole("button").map((one) => one.textContent),
    ["+ hidden", "+ depth"],
  );
  for (const button of proposed.getAllByRole("button")) fireEvent.click(button);
  assert.deepEqual(
    kernel.messages("edit").map(({ changes, removals }) => [changes, removals]),
    [
      [[["search.hidden", { type: "int", low: 16, high: 64 }]], []],
      [[["search.depth", { type: "int", low: 1, high: 6 }]], ["model.depth"]],
    ],
  );
});

test("a condition lists the values of its parent, and is removed as a whole", () => {
  const { kernel, form } = buildForm({ search: SEARCH });
  render(<SpacePart form={form} />);
  fireEvent.click(screen.getByRole("checkbox", { name: "adamw" }));
  assert.deepEqual(kernel.messages("edit")[0].changes, [["search.momentum.when.optimizer", ["sgd", "adamw"]]]);
  fireEvent.click(screen.getByRole("button", { name: "momentum no longer depends on optimizer" }));
  assert.deepEqual(kernel.messages("edit")[1].removals, ["search.momentum.when"]);
});

test("keys on a handle of the slider are one change, sent after a pause", () => {
  const { kernel, form } = buildForm({ search: [buildRow({ low: 0, high: 0.4 })] });
  render(<SpacePart form={form} />);
  const handle = screen.getByRole("slider", { name: "Highest lr" });
  fireEvent.keyDown(handle, { key: "ArrowLeft" });
  fireEvent.keyDown(handle, { key: "ArrowLeft" });
  assert.equal(kernel.messages("edit").length, 0);
  mock.timers.tick(1000);
  const [{ changes }] = kernel.messages("edit") as { changes: [string, number][] }[];
  assert.equal(changes[0][0], "search.lr.high");
  assert.ok(changes[0][1] < 0.4);
});

test("a condition on a value that its parent has no longer stays in sight until somebody decides", () => {
  const [, optimizer, momentum] = SEARCH;
  const { kernel, form } = buildForm({ search: [{ ...optimizer, choices: ["adamw", "lion"] }, momentum] });
  render(<SpacePart form={form} />);
  const gone = screen.getByRole<HTMLInputElement>("checkbox", { name: /^sgd.*no longer a value of optimizer/ });
  assert.equal(gone.checked, true);
  fireEvent.click(screen.getByRole("checkbox", { name: "lion" }));
  fireEvent.click(gone);
  assert.deepEqual(
    kernel.messages("edit").map(({ changes }) => changes),
    [[["search.momentum.when.optimizer", ["sgd", "lion"]]], [["search.momentum.when.optimizer", []]]],
  );
});

test("what is known to be good is entered beside a range or choices, and taken back", () => {
  const near = { ...SEARCH[0], near: 0.01 };
  const { kernel, form } = buildForm({ search: [near, SEARCH[1]] });
  render(<SpacePart form={form} />);
  // What is written is in sight, the rest comes on request.
  assert.equal(screen.getAllByLabelText("probably good").length, 1);
  fireEvent.click(screen.getByRole("button", { name: "Options of optimizer" }));
  const [ofRate, ofOptimizer] = screen.getAllByLabelText<HTMLInputElement>("probably good");
  assert.deepEqual([ofRate.value, ofOptimizer.value], ["0.01", ""]);
  enter(ofRate, "");
  enter(ofOptimizer, "adamw");
  assert.deepEqual(
    kernel.messages("edit").map(({ changes, removals }) => [changes, removals]),
    [
      [[], ["search.lr.prior"]],
      [[["search.optimizer.prior.near", "adamw"]], []],
    ],
  );
});

test("what would be sampled is drawn, and the query follows changes", () => {
  const samples = {
    num_samples: 10,
    parameters: [
      { name: "optimizer", kind: "choices" as const, choices: ["sgd", "adamw"], counts: [7, 3], exists_share: 1 },
      { name: "momentum", kind: "range" as const, edges: [0.8, 0.9], counts: [7], exists_share: 0.7 },
    ],
  };
  const { kernel, form } = buildForm({ search: SEARCH }, { samples });
  const { container } = render(<SpacePart form={form} />);
  mock.timers.tick(300);
  assert.equal(kernel.last.topic, "samples");
  assert.match(container.textContent!, /sgd70%.*exists in 70% of configurations/s);
});
