// Inputs generated from the kernel's description of fields: kind, bounds, unit, choices and help.
import type { ComponentChildren } from "preact";
import type { Json } from "./message_types";
import type { FormField, Section } from "../types";
import { formatMetric } from "../format";
import {
  problemsAt,
  FieldProblems,
  Sentence,
  TextInput,
  useUniqueId,
  useTextField,
  type FormProps,
  lastNameOf,
} from "./text_field";
import { formatBounds, parseValue, toJsonText, parseFieldValue, toText } from "./field_values";

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

/** Leaves out the model or data itself, which has its own input, and settings that have no effect. */
export function fieldsOf(section: Section): FormField[] {
  const isChosenAbove = section.name === "model" || section.name === "data";
  return section.fields.filter((one) => one.applies !== false && !(isChosenAbove && one.path === section.name));
}

interface FoldedProps extends SectionProps {
  title?: string;
  isOpen: boolean;
  /** Replaces the generated fields. */
  children?: ComponentChildren;
}

/** A section that can be folded; its summary lists what is set. */
export function FoldedSection({ form, section, title, isOpen, onSearch, children }: FoldedProps) {
  const written = fieldsOf(section).filter((one) => one.value !== null);
  return (
    <details class="workbench-form-details" open={isOpen}>
      <summary>
        {title ?? section.title}
        <small>{written.map((one) => `${one.label.toLowerCase()} ${toText(one.value)}`).join(", ")}</small>
      </summary>
      {section.help ? (
        <p class="workbench-hint">
          <Sentence text={section.help} />
        </p>
      ) : null}
      {children ?? <SectionFields form={form} section={section} onSearch={onSearch} />}
    </details>
  );
}

interface FieldRowProps extends FormProps {
  field: FormField;
  onSearch?(name: string): void;
}

function FieldRow({ form, field, onSearch }: FieldRowProps) {
  const id = useUniqueId();
  const problems = problemsAt(form, field.path);
  const bounds = formatBounds(field);
  const help = [field.help, bounds ? `Allowed: ${bounds}.` : ""].filter(Boolean).join(" ");
  const name = lastNameOf(field.path);
  // Durations and sizes contain their units.
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
              form.edit(
                [[`search.${name}`, field.initial_search ?? null]],
                `Search ${name}`,
                field.value === null ? [] : [field.path],
              );
              onSearch(name);
            }}
          >
            search
          </button>
        ) : null}
      </div>
      <FieldProblems id={`${id}-problem`} problems={problems} />
      <p id={`${id}-help`} class="workbench-hint">
        <Sentence text={help} />
      </p>
    </div>
  );
}

interface FieldInputProps extends FormProps {
  field: FormField;
  id: string;
  isWrong: boolean;
  /** Receives the value instead of the experiment. */
  onValue?(value: Json): void;
}

/** The input of one field of any kind. */
export function FieldInput({ form, field, id, isWrong, onValue }: FieldInputProps) {
  const describedBy = `${id}-problem ${id}-help`;
  const send = (text: string): number | null => {
    const value = parseFieldValue(text, field.kind);
    if (onValue) {
      onValue(value);
      return null;
    }
    return value === null
      ? form.send({ type: "remove", path: field.path })
      : form.edit([[field.path, value]], `Set ${field.label}`);
  };
  const isChosen = field.kind === "choice" || field.kind === "switch";
  const shown = isChosen ? toJsonText(field.value ?? undefined) : toText(field.value);
  // What is wrong with a path is stated while it is typed; a number is not judged before its last digit.
  const typed = useTextField(form, shown, send, field.kind === "text" && !onValue);
  if (field.kind === "switch") {
    const isOn = typed.text === "" ? field.default === true : parseValue(typed.text) === true;
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
        placeholder={field.default === null && field.allows_none ? "none" : toText(field.default)}
        isNumeric={["number", "whole"].includes(field.kind)}
      />
      {list ? (
        <datalist id={list}>
          {(field.choices ?? []).map((one) => (
            <option key={toJsonText(one)} value={toText(one)} label={labelOf(field, one)} />
          ))}
        </datalist>
      ) : null}
    </>
  );
}

/** The default, the current value if it is not allowed, and the other choices. */
function Options({ field, shown }: { field: FormField; shown: string }) {
  const choices = (field.choices ?? []).map(toJsonText);
  const standing = shown && !choices.includes(shown) ? [shown] : [];
  const given = toJsonText(field.default ?? undefined);
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

/** What is shown beside a name that can be chosen: a metric in words. */
function labelOf({ path }: FormField, choice: Json): string | undefined {
  return path.endsWith(".metric") && typeof choice === "string" ? formatMetric(choice) : undefined;
}
