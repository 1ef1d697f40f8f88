// The search space: one row for each parameter, with its kind, its values, when it exists, and what would be sampled.
import { useId, useState } from "preact/hooks";
import { SectionFields } from "./fields";
import type { Field, Json, Sampled } from "./protocol";
import { RangeSlider, ChoiceBars } from "./slider";
import { beginning, rowsOf, scaleOf, withKind, type Kind, type SearchRow } from "./space";
import { PathInput, problemsAt, ProblemsUnder, ProblemWords, TextInput, useAsked, useTyped, type FormProps } from "./typed";
import { WhenEditor } from "./when";
import { listOf, listText, numberOr, parsed, textOf, writtenOf } from "./written";

const KIND_NAMES: Record<Kind, string> = { float: "range", int: "whole numbers", choices: "choices", fixed: "fixed" };
/** Settings that a configuration may hold, beside those of the model. */
const SEARCHED_SECTIONS = ["model", "training", "plan"];

export function SpacePart({ form }: FormProps) {
  const state = form.state!;
  const rows = rowsOf(state);
  const samples = form.part("samples");
  useAsked(JSON.stringify(state.document.search ?? null), () => form.ask("samples"));
  const sampled = new Map(samples?.picture?.parameters.map((one) => [one.name, one]));
  const fields = state.sections.filter(({ name }) => SEARCHED_SECTIONS.includes(name)).flatMap((section) => section.fields);
  const focusRow = (name: string) => requestAnimationFrame(() => document.getElementById(`workbench-parameter-${name}`)?.focus());
  return (
    <>
      <ProblemsUnder id="search-problems" problems={problemsAt(form, "search")} />
      {samples?.problem ? <p class="workbench-notice">{<ProblemWords problem={samples.problem} withField />}</p> : null}
      {rows.length ? null : (
        <p class="workbench-form-empty">
          Nothing is searched yet: every trial would train the same configuration. Name a parameter below, or press
          “search” beside a setting.
        </p>
      )}
      <div class="workbench-form-rows">
        {rows.map((row) => (
          <ParameterRow
            key={row.name}
            form={form}
            row={row}
            others={rows.filter((one) => one.name !== row.name)}
            sampled={sampled.get(row.name) ?? null}
            field={fields.find((one) => nameOf(one) === row.name) ?? null}
          />
        ))}
      </div>
      <AddParameter form={form} fields={fields.filter((one) => !rows.some((row) => row.name === nameOf(one)))} onAdded={focusRow} />
      {state.sections
        .filter(({ name }) => name === "training" || name === "plan")
        .map((section) => (
          <details key={section.name} class="workbench-form-details" open={section.name === "training"}>
            <summary>{section.title}: what is not searched</summary>
            {section.help ? <p class="workbench-hint">{section.help}</p> : null}
            <SectionFields form={form} section={section} onSearch={focusRow} />
          </details>
        ))}
    </>
  );
}

function nameOf(field: Field): string {
  return field.path.split(".").at(-1)!;
}

interface RowProps extends FormProps {
  row: SearchRow;
  others: SearchRow[];
  sampled: Sampled | null;
  field: Field | null;
}

function ParameterRow({ form, row, others, sampled, field }: RowProps) {
  const path = `search.${row.name}`;
  const change = (kind: Kind | "auto") => {
    if (kind !== "auto") return form.edit([[path, withKind(row, kind)]], `Search ${row.name} as ${KIND_NAMES[kind]}`);
    // Where nothing is said the default holds, which is auto for most that can be.
    const changes: [string, Json][] = field!.default === "auto" ? [] : [[field!.path, "auto"]];
    return form.edit(changes, `Leave ${row.name} to the advisor`, [path]);
  };
  const share = sampled && sampled.exists_share < 1 ? Math.round(sampled.exists_share * 100) : null;
  return (
    <fieldset class="workbench-form-row" data-parameter={row.name}>
      <legend class="workbench-form-hidden">{row.name}</legend>
      <div class="workbench-form-row-head">
        <NameInput form={form} name={row.name} />
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
          {field?.allows_auto ? <option value="auto">auto: left to the advisor</option> : null}
        </select>
        <button
          type="button"
          class="workbench-quiet workbench-form-remove"
          aria-label={`Remove ${row.name}`}
          title="Search it no more"
          onClick={() => form.say({ type: "remove", path })}
        >
          ✕
        </button>
      </div>
      <div class="workbench-form-row-body">
        <Values form={form} row={row} sampled={sampled} />
      </div>
      <ProblemsUnder id={`${path}-problems`} problems={problemsAt(form, path)} />
      <div class="workbench-form-row-foot">
        <WhenEditor form={form} row={row} others={others} />
        {share !== null ? <span class="workbench-muted">exists in {share} % of configurations</span> : null}
        {field?.help ? <span class="workbench-muted workbench-form-row-help">{field.help}</span> : null}
      </div>
    </fieldset>
  );
}

function NameInput({ form, name }: FormProps & { name: string }) {
  const typed = useTyped(form, name, (text) => form.say({ type: "rename", path: `search.${name}`, name: text.trim() }));
  return (
    <input
      id={`workbench-parameter-${name}`}
      class="workbench-form-name"
      aria-label={`Name of ${name}`}
      dir="ltr"
      spellcheck={false}
      autocomplete="off"
      value={typed.text}
      onInput={(event) => typed.type(event.currentTarget.value)}
      onBlur={() => typed.commit()}
      onKeyDown={(event) => event.key === "Enter" && typed.commit()}
    />
  );
}

function Values({ form, row, sampled }: Omit<RowProps, "others" | "field">) {
  switch (row.kind) {
    case "float":
    case "int":
      return <RangeEditor form={form} row={row} sampled={sampled} />;
    case "choices":
      return <ChoicesEditor form={form} row={row} sampled={sampled?.kind === "choices" ? sampled : null} />;
    case "fixed":
      return <FixedEditor form={form} row={row} />;
  }
}

interface EditorProps extends FormProps {
  row: SearchRow;
  sampled: Sampled | null;
}

function RangeEditor({ form, row, sampled }: EditorProps) {
  const path = `search.${row.name}`;
  // A whole number is no less a float: the kind is said along with it.
  const set = (changes: [string, Json][], label: string, removals: string[] = []) =>
    form.edit([...changes.map(([key, value]): [string, Json] => [`${path}.${key}`, value]), [`${path}.type`, row.kind]], label, removals);
  const bound = (key: "low" | "high") => (
    <PathInput
      form={form}
      path={`${path}.${key}`}
      label={key}
      shown={writtenOf(row[key])}
      send={(text) => set([[key, text.trim() === "" ? null : numberOr(text)]], `${row.name}: ${key}`)}
      isNumeric
      class="workbench-form-bound"
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
          scale={scaleOf(low, high, row.log, row.kind === "int")}
          sampled={sampled}
          onChange={(change) => set(Object.entries(change), `${row.name}: ${Object.keys(change).join(", ")}`)}
        />
      ) : (
        <div class="workbench-form-slider" />
      )}
      {bound("high")}
      <div class="workbench-form-more">
        <label class="workbench-check">
          <input
            type="checkbox"
            checked={row.log}
            aria-label={`${row.name} logarithmic`}
            onChange={(event) =>
              event.currentTarget.checked
                ? set([["log", true]], `${row.name}: logarithmic`)
                : set([], `${row.name}: even`, [`${path}.log`])
            }
          />
          log
        </label>
        <PathInput
          form={form}
          path={`${path}.step`}
          label="step"
          shown={writtenOf(row.step)}
          placeholder="none"
          send={(text) =>
            text.trim() === "" ? set([], `${row.name}: no step`, [`${path}.step`]) : set([["step", numberOr(text)]], `${row.name}: step`)
          }
          isNumeric
          class="workbench-form-step"
        />
        {problemsAt(form, `${path}.log`).length ? (
          <ProblemsUnder id={`${path}-log`} problems={problemsAt(form, `${path}.log`)} />
        ) : null}
      </div>
    </div>
  );
}

function ChoicesEditor({ form, row, sampled }: EditorProps) {
  const path = `search.${row.name}.choices`;
  return (
    <div class="workbench-form-choices">
      <PathInput
        form={form}
        path={path}
        label="values, with commas between them"
        shown={listText(row.choices)}
        send={(text) => form.edit([[path, listOf(text)]], `${row.name}: choices`)}
      />
      {sampled ? <ChoiceBars sampled={sampled} name={row.name} /> : null}
    </div>
  );
}

function FixedEditor({ form, row }: FormProps & { row: SearchRow }) {
  const isBare = !Object.keys(row.when).length;
  const path = isBare ? `search.${row.name}` : `search.${row.name}.value`;
  const send = (text: string): number => {
    const value = parsed(text);
    // A bare list or mapping would be read as choices or as a range.
    const written = isBare && typeof value === "object" && value !== null ? { value } : value;
    return form.edit([[path, written]], `${row.name}: value`);
  };
  return <PathInput form={form} path={`search.${row.name}.value`} label="value, the same in every trial" shown={textOf(row.value)} send={send} />;
}

function AddParameter({ form, fields, onAdded }: FormProps & { fields: Field[]; onAdded(name: string): void }) {
  const id = useId();
  const [name, setName] = useState("");
  const add = () => {
    const wanted = name.trim();
    if (!wanted) return;
    const field = fields.find((one) => nameOf(one) === wanted);
    const removals = field && field.value !== null ? [field.path] : [];
    form.edit([[`search.${wanted}`, field ? beginning(field) : { type: "float", low: 0, high: 1 }]], `Search ${wanted}`, removals);
    setName("");
    onAdded(wanted);
  };
  const typed = { text: name, type: setName, commit: () => undefined, choose: setName };
  return (
    <div class="workbench-bar workbench-form-add">
      <label for={id}>Search also</label>
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
