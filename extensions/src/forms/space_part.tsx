// The search space: one row for each parameter, with its kind, its values, when it exists, and what would be sampled.
import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { formatPercent } from "../format";
import type { KernelConnection } from "./kernel_connection";
import { FoldedSection } from "./fields";
import type { Json, Kind } from "./message_types";
import type { FormField, SampledParameter, SearchRow } from "../types";
import { RangeSlider, ChoiceBars } from "./slider";
import { scaleOf } from "./space";
import {
  PathInput,
  problemsAt,
  FieldProblems,
  ProblemText,
  Sentence,
  TextInput,
  useQuery,
  useUniqueId,
  useTextField,
  type FormProps,
  lastNameOf,
} from "./text_field";
import { ConditionEditor } from "./condition_editor";
import { parseList, formatList, parseNumber, parseValue, toJsonText, toText } from "./field_values";

const KIND_NAMES: Record<Kind, string> = { float: "range", int: "whole numbers", choices: "choices", fixed: "fixed" };
/** Settings that a configuration may hold, beside those of the model. */
const SEARCHED_SECTIONS = ["model", "training", "plan"];
/** A value of the model or of a train function, and not the model itself. */
const OF_MODEL = /^(model|train)\./;
const USUALLY_SEARCHED = new Set(["training.lr", "training.weight_decay", "training.optimizer"]);
const MAX_PROPOSALS = 16;

export function SpacePart({ form }: FormProps) {
  const state = form.state;
  const rows = state.search;
  const samples = form.answer("samples");
  useQuery(JSON.stringify([state.is_experiment, state.document.search]), () => form.query("samples"));
  const sampled = new Map(samples?.result?.parameters.map((one) => [one.name, one]));
  const fields = state.sections
    .filter(({ name }) => SEARCHED_SECTIONS.includes(name))
    .flatMap((section) => section.fields);
  const free = fields.filter((one) => !rows.some((row) => row.name === nameOf(one)));
  const rowsElement = useRef<HTMLDivElement>(null);
  const adding = useRef<HTMLDivElement>(null);
  // The row comes with the answer of the kernel.
  const awaited = useRef<string | null>(null);
  const focusRow = (name: string) => (awaited.current = name);
  useEffect(() => {
    const found = [...(rowsElement.current?.querySelectorAll<HTMLElement>("[data-parameter]") ?? [])].find(
      (one) => one.dataset.parameter === awaited.current,
    );
    if (!found) return;
    awaited.current = null;
    found.focus();
  });
  return (
    <>
      <FieldProblems problems={problemsAt(form, "search")} />
      {samples?.problem ? <p class="workbench-notice">{<ProblemText problem={samples.problem} withField />}</p> : null}
      {rows.length ? null : (
        <p class="workbench-form-empty">
          Nothing is searched yet: every trial would train the same configuration. Name a parameter below, or press
          “search” beside a setting.
        </p>
      )}
      <div class="workbench-form-rows" ref={rowsElement}>
        {rows.map((row) => (
          <ParameterRow
            key={row.name}
            form={form}
            row={row}
            others={rows.filter((one) => one.name !== row.name)}
            sampled={sampled.get(row.name) ?? null}
            field={fields.find((one) => nameOf(one) === row.name) ?? null}
            onRenamed={focusRow}
            onRemoved={() => adding.current?.querySelector("input")?.focus()}
          />
        ))}
      </div>
      <Proposals form={form} fields={free} onAdded={focusRow} />
      <AddParameter element={adding} form={form} fields={free} onAdded={focusRow} />
      {state.sections
        .filter(({ name }) => name === "training" || name === "plan")
        .map((section) => (
          <FoldedSection
            key={section.name}
            form={form}
            section={section}
            title={`${section.title}, the same in every trial`}
            isOpen={false}
            onSearch={focusRow}
          />
        ))}
    </>
  );
}

function nameOf(field: FormField): string {
  return lastNameOf(field.path);
}

interface RowProps extends FormProps {
  row: SearchRow;
  others: SearchRow[];
  sampled: SampledParameter | null;
  field: FormField | null;
  onRenamed(name: string): void;
  onRemoved(): void;
}

function ParameterRow({ form, row, others, sampled, field, onRenamed, onRemoved }: RowProps) {
  const path = `search.${row.name}`;
  const change = (kind: Kind | "auto") => {
    if (kind !== "auto")
      return form.edit([[path, row.written_as[kind] ?? null]], `Search ${row.name} as ${KIND_NAMES[kind]}`);
    // Where nothing is given the default holds, which is auto for most that can be.
    const changes: [string, Json][] = !field || field.default === "auto" ? [] : [[field.path, "auto"]];
    return form.edit(changes, `Leave ${row.name} to the advisor`, [path]);
  };
  const share = sampled && sampled.exists_share < 1 ? formatPercent(sampled.exists_share) : null;
  // What is written is in sight; the rest comes on request, so that many parameters fit on a screen.
  const isWritten = row.step !== null || row.near !== null || Object.keys(row.when).length > 0;
  const hasProblem = form.state.problems.some((one) => one.field?.startsWith(`${path}.`));
  const [isOpen, open] = useState(false);
  const showsOptions = isOpen || isWritten || hasProblem;
  return (
    <div class="workbench-form-row" role="group" aria-label={row.name}>
      <div class="workbench-form-row-line">
        <NameInput form={form} name={row.name} onRenamed={onRenamed} />
        <select
          aria-label={`Kind of ${row.name}`}
          value={row.kind}
          onChange={(event) => change(event.currentTarget.value as Kind | "auto")}
        >
          {(Object.keys(KIND_NAMES) as Kind[]).map((kind) => (
            <option key={kind} value={kind}>
              {KIND_NAMES[kind]}
            </option>
          ))}
          {field?.allows_auto ? <option value="auto">auto</option> : null}
        </select>
        <div class="workbench-form-row-body">
          <Values form={form} row={row} sampled={sampled} field={field} />
        </div>
        <button
          type="button"
          class="workbench-quiet"
          aria-label={`Options of ${row.name}`}
          aria-expanded={showsOptions}
          title="Step, a value that is probably good, and when it exists"
          disabled={isWritten || hasProblem}
          onClick={() => open(!isOpen)}
        >
          ⋯
        </button>
        <button
          type="button"
          class="workbench-quiet workbench-form-remove"
          aria-label={`Remove ${row.name}`}
          title="Remove from the search"
          onClick={() => {
            form.send({ type: "remove", path });
            onRemoved();
          }}
        >
          ✕
        </button>
      </div>
      <FieldProblems problems={problemsAt(form, path)} />
      {showsOptions ? (
        <div class="workbench-form-row-foot">
          {isRange(row) ? <StepInput form={form} row={row} /> : null}
          {row.kind === "fixed" ? null : <PriorInput form={form} row={row} />}
          <ConditionEditor form={form} row={row} others={others} />
          {share !== null ? <span class="workbench-muted">exists in {share} of configurations</span> : null}
          {field?.help ? (
            <span class="workbench-muted workbench-form-row-help">
              <Sentence text={field.help} />
            </span>
          ) : null}
        </div>
      ) : null}
    </div>
  );
}

function NameInput({ form, name, onRenamed }: FormProps & { name: string; onRenamed(name: string): void }) {
  const typed = useTextField(form, name, (text) =>
    form.send({ type: "rename", path: `search.${name}`, name: text.trim() }),
  );
  return (
    <input
      data-parameter={name}
      class="workbench-form-name"
      aria-label={`Name of ${name}`}
      dir="ltr"
      spellcheck={false}
      autocomplete="off"
      value={typed.text}
      onInput={(event) => typed.type(event.currentTarget.value)}
      onBlur={() => typed.commit()}
      onKeyDown={(event) => {
        if (event.key !== "Enter") return;
        typed.commit();
        onRenamed(typed.text.trim());
      }}
    />
  );
}

function isRange(row: SearchRow): boolean {
  return row.kind === "float" || row.kind === "int";
}

function Values({ form, row, sampled, field }: Omit<RowProps, "others" | "onRenamed" | "onRemoved">) {
  switch (row.kind) {
    case "float":
    case "int":
      return <RangeEditor form={form} row={row} sampled={sampled} field={field} />;
    case "choices":
      return <ChoicesEditor form={form} row={row} sampled={sampled?.kind === "choices" ? sampled : null} />;
    case "fixed":
      return <FixedEditor form={form} row={row} />;
  }
}

interface EditorProps extends FormProps {
  row: SearchRow;
  sampled: SampledParameter | null;
}

/** A whole number may be a float, too: so the kind is sent with it. */
function setRange(
  form: KernelConnection,
  row: SearchRow,
  changes: [string, Json][],
  label: string,
  removals: string[] = [],
): number {
  const path = `search.${row.name}`;
  const written = changes.map(([key, value]): [string, Json] => [`${path}.${key}`, value]);
  return form.edit(
    [...written, [`${path}.type`, row.kind]],
    `${row.name}: ${label}`,
    removals.map((key) => `${path}.${key}`),
  );
}

function RangeEditor({ form, row, sampled, field }: EditorProps & { field: FormField | null }) {
  const path = `search.${row.name}`;
  const id = useUniqueId();
  const bound = (key: "low" | "high") => (
    <PathInput
      form={form}
      path={`${path}.${key}`}
      label={key}
      shown={toText(row[key])}
      send={(text) => setRange(form, row, [[key, text.trim() === "" ? null : parseNumber(text)]], key)}
      isLabelSeen={false}
      isNumeric
      class="workbench-form-bound"
      problemId={`${id}-${key}`}
    />
  );
  const { low, high } = row;
  const isDrawn = typeof low === "number" && typeof high === "number" && low <= high && !(row.log && low <= 0);
  return (
    <div class="workbench-form-range">
      {bound("low")}
      {isDrawn ? (
        <RangeSlider
          name={row.name}
          low={low}
          high={high}
          scale={scaleOf(low, high, row.log, row.kind === "int", field)}
          sampled={sampled}
          onChange={(change) => setRange(form, row, Object.entries(change), Object.keys(change).join(", "))}
        />
      ) : (
        <div class="workbench-form-slider" />
      )}
      {bound("high")}
      <LogCheck form={form} row={row} />
      {(["low", "high", "log"] as const).map((key) => (
        <div key={key} class="workbench-form-range-problems">
          <FieldProblems
            id={`${id}-${key}`}
            problems={problemsAt(form, `${path}.${key}`)}
            label={key === "log" ? undefined : key}
          />
        </div>
      ))}
    </div>
  );
}

function LogCheck({ form, row }: FormProps & { row: SearchRow }) {
  return (
    <label class="workbench-check" title="Spread evenly over orders of magnitude">
      <input
        type="checkbox"
        checked={row.log}
        aria-label={`${row.name} logarithmic`}
        onChange={(event) =>
          event.currentTarget.checked
            ? setRange(form, row, [["log", true]], "logarithmic")
            : setRange(form, row, [], "even", ["log"])
        }
      />
      log
    </label>
  );
}

function StepInput({ form, row }: FormProps & { row: SearchRow }) {
  const setStep = (text: string): number =>
    text.trim() === ""
      ? setRange(form, row, [], "no step", ["step"])
      : setRange(form, row, [["step", parseNumber(text)]], "step");
  return (
    <PathInput
      form={form}
      path={`search.${row.name}.step`}
      label="step"
      shown={toText(row.step)}
      placeholder="none"
      send={setStep}
      isNumeric
      class="workbench-form-step"
    />
  );
}

/** A value that is probably good. The search starts there. */
function PriorInput({ form, row }: FormProps & { row: SearchRow }) {
  const prior = `search.${row.name}.prior`;
  const send = (text: string): number =>
    text.trim() === ""
      ? form.edit([], `${row.name}: no value is known to be good`, [prior])
      : form.edit([[`${prior}.near`, parseValue(text)]], `${row.name}: probably good`);
  return (
    <PathInput
      form={form}
      path={`${prior}.near`}
      label="probably good"
      shown={row.near === null ? "" : toJsonText(row.near)}
      placeholder="unknown"
      send={send}
      class="workbench-form-bound"
    />
  );
}

function ChoicesEditor({ form, row, sampled }: EditorProps) {
  const path = `search.${row.name}.choices`;
  return (
    <div class="workbench-form-choices">
      <PathInput
        form={form}
        path={path}
        label="comma-separated values"
        isLabelSeen={false}
        shown={formatList(row.choices)}
        send={(text) => form.edit([[path, parseList(text)]], `${row.name}: choices`)}
      />
      {sampled ? <ChoiceBars sampled={sampled} name={row.name} /> : null}
    </div>
  );
}

function FixedEditor({ form, row }: FormProps & { row: SearchRow }) {
  const isBare = !Object.keys(row.when).length;
  const path = isBare ? `search.${row.name}` : `search.${row.name}.value`;
  const send = (text: string): number => {
    const value = parseValue(text);
    // A bare list or mapping would be read as choices or as a range.
    const written = isBare && typeof value === "object" && value !== null ? { value } : value;
    return form.edit([[path, written]], `${row.name}: value`);
  };
  return (
    <PathInput
      form={form}
      path={`search.${row.name}.value`}
      label="value in every trial"
      isLabelSeen={false}
      shown={toJsonText(row.value)}
      send={send}
    />
  );
}

/** Searches a setting from now on; a value that is set is replaced. */
function search(form: KernelConnection, name: string, field: FormField | undefined): void {
  const removals = field && field.value !== null ? [field.path] : [];
  const domain = field ? (field.initial_search ?? null) : { type: "float", low: 0, high: 1 };
  form.edit([[`search.${name}`, domain]], `Search ${name}`, removals);
}

/** What the model reads, and what nearly every training depends on: one click each. */
function Proposals({ form, fields, onAdded }: FormProps & { fields: FormField[]; onAdded(name: string): void }) {
  const proposed = fields.filter(
    ({ path, applies }) => applies !== false && (OF_MODEL.test(path) || USUALLY_SEARCHED.has(path)),
  );
  if (!proposed.length) return null;
  return (
    <div class="workbench-bar" role="group" aria-label="Parameters to search">
      <span class="workbench-muted">Also search</span>
      {proposed.slice(0, MAX_PROPOSALS).map((field) => (
        <button
          key={field.path}
          type="button"
          class="workbench-form-proposal"
          title={field.help ?? field.label}
          onClick={() => {
            search(form, nameOf(field), field);
            onAdded(nameOf(field));
          }}
        >
          + {nameOf(field)}
        </button>
      ))}
    </div>
  );
}

interface AddProps extends FormProps {
  element: RefObject<HTMLDivElement>;
  fields: FormField[];
  onAdded(name: string): void;
}

function AddParameter({ element, form, fields, onAdded }: AddProps) {
  const id = useUniqueId();
  const [name, setName] = useState("");
  const add = () => {
    const wanted = name.trim();
    if (!wanted) return;
    search(
      form,
      wanted,
      fields.find((one) => nameOf(one) === wanted),
    );
    setName("");
    onAdded(wanted);
  };
  const nothing = () => undefined; // only Enter and the button add it
  const kept = { text: name, isOpen: false, type: setName, choose: setName };
  const typed = { ...kept, commit: nothing, enter: nothing, leave: nothing };
  return (
    <div class="workbench-bar workbench-form-add" ref={element}>
      <label for={id}>Add a parameter</label>
      <TextInput
        typed={typed}
        id={id}
        list={`${id}-list`}
        placeholder="lr, width, …"
        onKeyDown={(event) => event.key === "Enter" && add()}
      />
      <datalist id={`${id}-list`}>
        {fields.map((field) => (
          <option key={field.path} value={nameOf(field)}>
            {field.help ?? field.label}
          </option>
        ))}
      </datalist>
      <button type="button" onClick={add} disabled={!name.trim()}>
        Add
      </button>
    </div>
  );
}
