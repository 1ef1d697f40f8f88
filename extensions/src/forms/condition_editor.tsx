// When a parameter exists: always, or only at certain values of others.
import type { Json } from "./message_types";
import type { SearchRow } from "../types";
import { PathInput, type FormProps } from "./text_field";
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
        parent.choices.map((choice) => {
          const isWanted = values.some((one) => toJsonText(one) === toJsonText(choice));
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
    </span>
  );
}

function firstOf(parent: SearchRow): Json {
  return parent.choices[0] ?? (parent.kind === "fixed" ? parent.value : parent.low);
}
