// The page to try a served model: a form made from the description of the server. It loads nothing from elsewhere.
"use strict";

const TOKEN = "workbench-serve-token";
const at = (id) => document.getElementById(id);
let description = null;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

async function call(path, body) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const found = await response.json().catch(() => ({ problem: response.statusText }));
  return { status: response.status, found };
}

function showProblem(text) {
  at("problem").hidden = !text;
  at("problem").textContent = text ?? "";
}

function describe(found) {
  const allowed = found.allowed ? ` Allowed: ${found.allowed}.` : "";
  return `${found.problem}.${allowed} ${found.next_step ?? ""}`;
}

function takesImage(schema) {
  return (schema.anyOf ?? []).some((each) => each.contentEncoding === "base64");
}

function shapeOf(schema) {
  if (schema.anyOf) return shapeOf(schema.anyOf.find((each) => each.type === "array"));
  return schema.type === "array" ? [schema.minItems, ...shapeOf(schema.items)] : [];
}

function field(name, schema, number) {
  const kind = takesImage(schema) ? "image" : schema["x-kind"];
  const id = `field-${number}`;
  const [example] = schema.examples ?? [];
  let input;
  if (kind === "image") {
    input = imageInput();
  } else if (kind === "array") {
    input = element("textarea", { value: example === undefined ? "" : JSON.stringify(example) });
  } else if (kind === "number") {
    input = element("input", { type: "number", step: "any", value: example ?? "" });
  } else {
    input = element("input", { type: "text", value: example ?? "" });
    if (kind === "category") {
      const list = element("datalist", { id: `${id}-values` });
      for (const value of schema["x-known-values"]) list.append(element("option", { value }));
      input.setAttribute("list", list.id);
      input.append(list);
      at("fields").append(list);
    }
  }
  Object.assign(input, { id, name, placeholder: kind === "array" ? "numbers as JSON" : "missing" });
  input.dataset.kind = kind;
  const shown = kind === "array" ? `array ${shapeOf(schema).join(" × ")}` : kind;
  const label = element("label", { htmlFor: id }, name, element("span", { className: "kind" }, shown));
  at("fields").append(element("div", { className: "field" }, label, input));
  if (kind === "image") input.after(element("img", { alt: "The chosen image", hidden: true }));
}

/** Returns what chooses an image file; its content is kept as a data URL, which the server takes as it is. */
function imageInput() {
  const input = element("input", { type: "file", accept: "image/*" });
  input.addEventListener("change", () => {
    const [file] = input.files;
    const preview = input.nextElementSibling;
    preview.hidden = true;
    delete input.dataset.content;
    if (!file) return;
    const reader = new FileReader();
    reader.onload = () => {
      if (input.files[0] !== file) return;
      input.dataset.content = preview.src = reader.result;
    };
    preview.onload = () => { preview.hidden = false; };
    reader.readAsDataURL(file);
  });
  return input;
}

function value(input) {
  if (input.dataset.kind === "array") {
    try {
      return JSON.parse(input.value);
    } catch {
      return input.value;
    }
  }
  if (input.dataset.kind === "image") return input.dataset.content ?? null;
  if (input.value === "") return null;
  return input.dataset.kind === "number" ? Number(input.value) : input.value;
}

function inputs() {
  return [...at("fields").querySelectorAll("input, textarea")];
}

async function showDrift(name) {
  const { status, found } = await call(`v1/${name}/drift`);
  if (at("model").value !== name) return;
  at("drift").hidden = status !== 200 || found.num_rows === 0;
  if (at("drift").hidden) return;
  const head = ["Column", "Shift", "Drift above", "Missing"].map((text, index) =>
    element("th", { className: index ? "number" : "" }, text));
  const table = element("table", {}, element("tr", {}, ...head));
  for (const each of [...found.columns, ...(found.answers ? [found.answers] : [])]) {
    const numbers = [each.index.toFixed(3), each.limit.toFixed(3), `${(each.missing * 100).toFixed(1)} %`];
    const cells = numbers.map((text) => element("td", { className: "number" }, text));
    const shown = each.drifted ? `${each.name}: drift` : each.name;
    table.append(element("tr", { className: each.drifted ? "bad" : "" }, element("td", {}, shown), ...cells));
  }
  const about = `The last ${found.num_rows} kept rows, compared with the training data. ` +
    `Batches take ${found.latency_ratio.toFixed(2)} times as long as when the model was opened.`;
  const steps = found.next_steps.map((text) => element("p", { className: "hint" }, text));
  at("drift").replaceChildren(
    element("h2", {}, "Drift"), table, element("p", { className: "hint" }, about), ...steps,
  );
}

function showModel() {
  const name = at("model").value;
  const schema = description.components.schemas[`${name}.Row`];
  at("fields").replaceChildren();
  Object.entries(schema.properties).forEach(([column, each], number) => field(column, each, number));
  at("answer").replaceChildren(element("p", { className: "hint" }, "Fill in the row, and predict."));
  at("about").textContent = "";
  const address = `${location.origin}/v1/${name}/predict`;
  const isOfImages = Object.values(schema.properties).some(takesImage);
  const columns = Object.keys(schema.properties).slice(0, 3).map((each) => `"${each}": ...`).join(", ");
  const [kind, body] = isOfImages
    ? ["image/jpeg", "--data-binary @IMAGE_FILE"]
    : ["application/json", `-d '{"rows": [{${columns}, ...}]}'`];
  at("command").textContent =
    `curl ${address} \\\n  -H "Authorization: Bearer $(cat TOKEN_FILE)" -H "Content-Type: ${kind}" \\\n  ${body}`;
  showDrift(name);
  call(`v1/${name}`).then(({ status, found }) => {
    if (status !== 200 || at("model").value !== name) return;
    const milliseconds = (found.one_row_s * 1000).toPrecision(3);
    at("about").textContent =
      `Trained on ${found.trained_on}. Version ${found.version || "unknown"}; one row takes ${milliseconds} ms.`;
  });
}

function rowsOf(names, numbers, withBars) {
  const table = element("table");
  const pairs = names.map((name, index) => [name, numbers[index]]);
  if (withBars) pairs.sort((one, other) => (other[1] ?? 0) - (one[1] ?? 0));
  for (const [name, number] of pairs.slice(0, 20)) {
    const cells = [element("td", {}, name)];
    const bar = () => element("meter", { min: 0, max: 1, value: number ?? 0 });
    if (withBars) cells.push(element("td", { className: "bar" }, bar()));
    const text = number === null ? "not finite" : withBars ? number.toFixed(4) : String(number);
    cells.push(element("td", { className: "number" }, text));
    table.append(element("tr", {}, ...cells));
  }
  return table;
}

function showAnswer(answer, seconds) {
  const shown = [];
  const parts = answer.classes ?? answer.boxes;
  if (parts !== undefined) {
    shown.push(element("pre", {}, parts.map((each) => JSON.stringify(each)).join("\n")));
  } else if (answer.class !== undefined) {
    shown.push(element("div", { className: "result" }, answer.class));
    shown.push(rowsOf(Object.keys(answer.probabilities), Object.values(answer.probabilities), true));
  } else if (answer.values !== null && typeof answer.values === "object" && !Array.isArray(answer.values)) {
    const names = Object.keys(answer.values);
    if (names.length === 1) shown.push(element("div", { className: "result" }, String(answer.values[names[0]])));
    shown.push(rowsOf(names, Object.values(answer.values), false));
  } else {
    shown.push(element("pre", {}, JSON.stringify(answer.values, null, 1)));
  }
  for (const note of answer.notes ?? []) shown.push(element("p", { className: "hint" }, `Note: ${note}.`));
  shown.push(element("p", { className: "hint" }, `Answered in ${(seconds * 1000).toFixed(1)} ms, network included.`));
  at("answer").replaceChildren(...shown);
}

at("row").addEventListener("submit", async (event) => {
  event.preventDefault();
  showProblem();
  const fields = inputs();
  const row = Object.fromEntries(fields.map((input) => [input.name, value(input)]));
  const button = at("row").querySelector("button");
  button.disabled = true;
  for (const input of fields) input.classList.remove("wrong");
  const started = performance.now();
  try {
    const { status, found } = await call(`v1/${at("model").value}/predict`, { rows: [row] });
    if (status === 200) {
      showDrift(at("model").value);
      showAnswer(found.answers[0], (performance.now() - started) / 1000);
    } else {
      at("answer").replaceChildren(element("p", { className: "hint" }, "There is none."));
      showProblem(describe(found));
      const wrong = new Set((found.problems ?? []).map((each) => each.column));
      for (const input of fields) input.classList.toggle("wrong", wrong.has(input.name));
    }
  } catch {
    showProblem("The server does not answer.");
  } finally {
    button.disabled = false;
  }
});

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value.trim());
  open();
});

at("model").addEventListener("change", showModel);

async function open() {
  showProblem();
  let answer;
  try {
    answer = await call("openapi.json");
  } catch {
    return showProblem("The server does not answer.");
  }
  const isRefused = answer.status === 401;
  at("login").hidden = !isRefused;
  at("content").hidden = at("choice").hidden = answer.status !== 200;
  if (answer.status !== 200) {
    if (!isRefused || sessionStorage.getItem(TOKEN)) showProblem(describe(answer.found));
    return at("token").focus();
  }
  description = answer.found;
  const names = Object.keys(description.components.schemas).filter((name) => name.endsWith(".Row"));
  at("model").replaceChildren(...names.map((name) => element("option", {}, name.slice(0, -".Row".length))));
  showModel();
}

open();
