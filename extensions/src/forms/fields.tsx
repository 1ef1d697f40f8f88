// Forms that are generated from what the kernel says of fields: their kind, bounds, unit, choices and help.
import { useId } from "preact/hooks";
import type { Field, Json, Section } from "./protocol";
import { beginning } from "./space";
import { ProblemsUnder, problemsAt, TextInput, useTyped, type FormProps } from "./typed";
import { boundsOf, parsed, textOf, valueOf, writtenOf } from "./written";

/** Sections whose fields may be searched, each under the last word of its path. */
const SEARCHABLE = new Set(["model", "training", "plan"]);

interface SectionProps extends FormProps {
  section: Section;
  onSearch?(name: string): void;
}

export function SectionFields({ form, section, onSearch }: SectionProps) {
  return (
    <div class="workbench-form-fields">
      {fieldsOf(section).map((field) => (
        <FieldRow
          key={field.path}
          form={form}
          field={field}
          onSearch={SEARCHABLE.has(section.name) ? onSearch : undefined}
        />
      ))}
    </div>
  );
}

/** Without the choice of what the section is about, which stands above it. */
export function fieldsOf(section: Section): Field[] {
  const isChosenAbove = section.name === "model" || section.name === "data";
  return isChosenAbove ? section.fields.filter((one) => one.path !== section.name) : section.fields;
}

interface FieldRowProps extends FormProps {
  field: Field;
  onSearch?(name: string): void;
}

function FieldRow({ form, field, onSearch }: FieldRowProps) {
  const id = useId();
  const problems = problemsAt(form, field.path);
  const help = [field.help, boundsOf(field)].filter(Boolean).join(" ");
  const name = field.path.split(".").at(-1)!;
  return (
    <div class={`workbench-form-field${problems.length ? " workbench-form-wrong" : ""}`} data-path={field.path}>
      <label for={id}>{field.label}</label>
      <div class="workbench-form-control">
        {field.is_searched ? (
          <button type="button" id={id} class="workbench-link" onClick={() => onSearch?.(name)}>
            searched
          </button>
        ) : (
          <FieldInput form={form} field={field} id={id} isWrong={problems.length > 0} />
        )}
        {field.unit && !field.is_searched ? <span class="workbench-form-unit">{field.unit}</span> : null}
        {onSearch && !field.is_searched ? (
          <button
            type="button"
            class="workbench-quiet workbench-form-search"
            aria-label={`Search ${field.label}`}
            title="Try several values"
            onClick={() => {
              form.edit([[`search.${name}`, beginning(field)]], `Search ${name}`, field.value === null ? [] : [field.path]);
              onSearch(name);
            }}
          >
            search
          </button>
        ) : null}
      </div>
      <ProblemsUnder id={`${id}-problem`} problems={problems} />
      <p id={`${id}-help`} class="workbench-hint">
        {help}
      </p>
    </div>
  );
}

interface FieldInputProps extends FormProps {
  field: Field;
  id: string;
  isWrong: boolean;
  /** Instead of changing the experiment. */
  onValue?(value: Json): void;
}

/** The control of one field, of whatever kind. */
export function FieldInput({ form, field, id, isWrong, onValue }: FieldInputProps) {
  const describedBy = `${id}-problem ${id}-help`;
  const send = (text: string): number | null => {
    const value = valueOf(text, field.kind);
    if (onValue) {
      onValue(value);
      return null;
    }
    return value === null
      ? form.say({ type: "remove", path: field.path })
      : form.edit([[field.path, value]], `Set ${field.label}`);
  };
  const isChosen = field.kind === "choice" || field.kind === "switch";
  const typed = useTyped(form, isChosen ? textOf(field.value ?? undefined) : writtenOf(field.value), send);
  if (field.kind === "switch") {
    const isOn = typed.text === "" ? field.default === true : parsed(typed.text) === true;
    return (
      <input
        type="checkbox"
        id={id}
        checked={isOn}
        aria-describedby={describedBy}
        onChange={(event) => typed.choose(String(event.currentTarget.checked))}
      />
    );
  }
  if (field.kind === "choice") {
    return (
      <select
        id={id}
        aria-describedby={describedBy}
        aria-invalid={isWrong || undefined}
        value={typed.text}
        onChange={(event) => typed.choose(event.currentTarget.value)}
      >
        <Options field={field} shown={typed.text} />
      </select>
    );
  }
  const list = field.choices?.length ? `${id}-list` : undefined;
  return (
    <>
      <TextInput
        typed={typed}
        id={id}
        describedBy={describedBy}
        isWrong={isWrong}
        list={list}
        placeholder={writtenOf(field.default)}
        isNumeric={["number", "whole"].includes(field.kind)}
      />
      {list ? (
        <datalist id={list}>
          {field.choices!.map((one) => (
            <option key={textOf(one)} value={writtenOf(one)} />
          ))}
        </datalist>
      ) : null}
    </>
  );
}

/** The default first, as what stands there where nothing is chosen; then all others, and what is there and wrong. */
function Options({ field, shown }: { field: Field; shown: string }) {
  const choices = (field.choices ?? []).map(textOf);
  const standing = shown && !choices.includes(shown) ? [shown] : [];
  const given = textOf(field.default ?? undefined);
  return (
    <>
      {field.default === null ? <option value="">–</option> : <option value="">{given} (default)</option>}
      {[...standing, ...choices]
        .filter((one) => one !== given || one === shown)
        .map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
    </>
  );
}
