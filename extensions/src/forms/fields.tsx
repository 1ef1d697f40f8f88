// Forms that are generated from what the kernel says of fields: their kind, bounds, unit, choices and help.
import type { ComponentChildren } from "preact";
import type { Field, Json, Section } from "./protocol";
import { beginning } from "./space";
import { problemsAt, ProblemsUnder, Sentence, TextInput, useOwnId, useTyped, type FormProps } from "./typed";
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

/** Without the choice of what the section is about, which stands above it, and without what nothing reads. */
export function fieldsOf(section: Section): Field[] {
  const isChosenAbove = section.name === "model" || section.name === "data";
  return section.fields.filter((one) => one.applies !== false && !(isChosenAbove && one.path === section.name));
}

interface FoldedProps extends SectionProps {
  title?: string;
  isOpen: boolean;
  /** In place of its fields as they come. */
  children?: ComponentChildren;
}

/** A section that can be closed; then it says what is written in it. */
export function FoldedSection({ form, section, title, isOpen, onSearch, children }: FoldedProps) {
  const written = fieldsOf(section).filter((one) => one.value !== null);
  return (
    <details class="workbench-form-details" open={isOpen}>
      <summary>
        {title ?? section.title}
        <small>{written.map((one) => `${one.label.toLowerCase()} ${writtenOf(one.value)}`).join(", ")}</small>
      </summary>
      {section.help ? <p class="workbench-hint"><Sentence text={section.help} /></p> : null}
      {children ?? <SectionFields form={form} section={section} onSearch={onSearch} />}
    </details>
  );
}

interface FieldRowProps extends FormProps {
  field: Field;
  onSearch?(name: string): void;
}

function FieldRow({ form, field, onSearch }: FieldRowProps) {
  const id = useOwnId();
  const problems = problemsAt(form, field.path);
  const bounds = boundsOf(field);
  const help = [field.help, bounds ? `Allowed: ${bounds}.` : ""].filter(Boolean).join(" ");
  const name = field.path.split(".").at(-1)!;
  // A duration and a size are written with their units.
  const unit = field.kind === "duration" || field.kind === "size" ? null : field.unit;
  return (
    <div class={`workbench-form-field${problems.length ? " workbench-form-wrong" : ""}`} data-path={field.path}>
      <label for={id}>{field.label}</label>
      <div class="workbench-form-control">
        {field.is_searched ? (
          <button type="button" id={id} class="workbench-link" onClick={() => onSearch?.(name)}>
            searched: see the search space
          </button>
        ) : (
          <FieldInput form={form} field={field} id={id} isWrong={problems.length > 0} />
        )}
        {unit && !field.is_searched ? <span class="workbench-form-unit">{unit}</span> : null}
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
        <Sentence text={help} />
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
        placeholder={field.default === null && field.allows_none ? "none" : writtenOf(field.default)}
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
