// When a parameter exists: always, or only at certain values of others.
import type { Json } from "./message_types";
import type { SearchRow } from "../types";
import { FieldProblems, PathInput, problemsAt, type FormProps } from "./text_field";
import { parseList, formatList, toJsonText } from "./field_values";

interface WhenProps extends FormProps {
  row: SearchRow;
  others: SearchRow[];
}

export function ConditionEditor({ form, row, others }: WhenProps) {
  const path = `search.${row.name}`;
  const conditions = Object.entries(row.when);
  const free = others.filter((one) => !(one.name in row.when));
  const add = (parent: SearchRow) => {
    // A bare value has no room for a condition.
    const isBare = row.kind === "fixed" && conditions.length === 0;
    const changes: [string, Json][] = isBare
      ? [[path, { value: row.value, when: { [parent.name]: firstOf(parent) } }]]
      : [[`${path}.when.${parent.name}`, firstOf(parent)]];
    form.edit(changes, `${row.name} depends on ${parent.name}`);
  };
  return (
    <div class="workbench-form-when">
      {conditions.map(([parent, wanted], at) => (
        <Condition
          key={parent}
          form={form}
          row={row}
          parent={others.find((one) => one.name === parent)}
          name={parent}
          wanted={wanted}
          isFirst={at === 0}
        />
      ))}
      {free.length ? (
        <select
          aria-label={conditions.length ? `${row.name} also depends on` : `When ${row.name} exists`}
          value=""
          onChange={(event) => {
            const parent = free.find((one) => one.name === event.currentTarget.value);
            event.currentTarget.value = "";
            if (parent) add(parent);
          }}
        >
          <option value="">{conditions.length ? "and …" : "always exists"}</option>
          {free.map((one) => (
            <option key={one.name} value={one.name}>
              only at some {one.name}
            </option>
          ))}
        </select>
      ) : null}
    </div>
  );
}

interface ConditionProps extends FormProps {
  row: SearchRow;
  parent: SearchRow | undefined;
  name: string;
  wanted: Json;
  isFirst: boolean;
}

function Condition({ form, row, parent, name, wanted, isFirst }: ConditionProps) {
  const path = `search.${row.name}.when.${name}`;
  const values = Array.isArray(wanted) ? wanted : [wanted];
  const set = (next: Json[]) =>
    form.edit([[path, next.length === 1 ? next[0] : next]], `${row.name} exists with ${name}`);
  const remove = () =>
    Object.keys(row.when).length === 1
      ? form.edit([], `${row.name} always exists`, [`search.${row.name}.when`])
      : form.send({ type: "remove", path });
  return (
    <span class="workbench-form-condition" role="group" aria-label={`${row.name} exists with ${name}`}>
      <span>
        {isFirst ? "only if" : "and"} <b>{name}</b> is
      </span>
      {parent?.kind === "choices" ? (
        choicesOf(parent, values).map((choice) => {
          const isWanted = isAmong(choice, values);
          return (
            <label class="workbench-check" key={toJsonText(choice)}>
              <input
                type="checkbox"
                checked={isWanted}
                onChange={() =>
                  set(isWanted ? values.filter((one) => toJsonText(one) !== toJsonText(choice)) : [...values, choice])
                }
              />
              {toJsonText(choice)}
              {isAmong(choice, parent.choices) ? null : <small>no longer a value of {name}</small>}
            </label>
          );
        })
      ) : (
        <PathInput
          form={form}
          path={path}
          label={`Values of ${name}`}
          isLabelSeen={false}
          shown={formatList(values)}
          send={(text) => set(parseList(text))}
          class="workbench-form-bound"
        />
      )}
      <button
        type="button"
        class="workbench-quiet workbench-form-remove"
        aria-label={`${row.name} no longer depends on ${name}`}
        onClick={remove}
      >
        ✕
      </button>
      {parent?.kind === "choices" ? <FieldProblems problems={problemsAt(form, path)} /> : null}
    </span>
  );
}

/** The values of a parameter, and those of the condition that it has no longer: they stay until somebody decides. */
function choicesOf(parent: SearchRow, wanted: Json[]): Json[] {
  return [...parent.choices, ...wanted.filter((one) => !isAmong(one, parent.choices))];
}

function isAmong(value: Json, values: readonly Json[]): boolean {
  return values.some((one) => toJsonText(one) === toJsonText(value));
}

function firstOf(parent: SearchRow): Json {
  return parent.choices[0] ?? (parent.kind === "fixed" ? parent.value : parent.low);
}
