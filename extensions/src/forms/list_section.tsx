// Lists of settings, such as objectives: one row of fields for each item, and more or fewer of them by clicks.
import { useEffect, useRef } from "preact/hooks";
import { SectionFields } from "./fields";
import type { Json } from "./message_types";
import type { Section } from "../types";
import { problemsAt, FieldProblems, type FormProps } from "./text_field";

interface ItemsProps extends FormProps {
  section: Section;
  list: NonNullable<Section["items"]>;
}

export function ListSection({ form, section, list: { num_items, min_items, next } }: ItemsProps) {
  const element = useRef<HTMLDivElement>(null);
  // The row comes with the answer of the kernel.
  const awaited = useRef<number | null>(null);
  const { name } = section;
  const what = name.replace(/s$/, "");
  useEffect(() => {
    if (awaited.current === null || awaited.current !== num_items) return;
    awaited.current = null;
    element.current?.querySelector<HTMLElement>(`[data-path^="${name}.${num_items - 1}."] :is(input, select)`)?.focus();
  });
  const add = () => {
    const written = form.state.document[name];
    form.edit([[name, [...(Array.isArray(written) ? written : []), next] as Json]], `Add ${what}`);
    awaited.current = num_items + 1;
  };
  const remove = (at: number) => {
    form.edit([], `Remove ${what} ${at + 1}`, [`${name}.${at}`]);
    element.current?.querySelector<HTMLElement>(".workbench-form-add button")?.focus();
  };
  return (
    <div class="workbench-form-rows" ref={element}>
      {Array.from({ length: num_items }, (_, at) => (
        <div class="workbench-form-row" role="group" aria-label={`${what} ${at + 1}`} key={at}>
          <div class="workbench-form-row-head">
            <b>{at + 1}</b>
            {num_items > min_items ? (
              <button
                type="button"
                class="workbench-quiet workbench-form-remove"
                aria-label={`Remove ${what} ${at + 1}`}
                onClick={() => remove(at)}
              >
                ✕
              </button>
            ) : null}
          </div>
          <SectionFields
            form={form}
            section={{ ...section, fields: section.fields.filter((one) => one.path.startsWith(`${name}.${at}.`)) }}
          />
          <FieldProblems problems={problemsAt(form, `${name}.${at}`)} />
        </div>
      ))}
      <div class="workbench-bar workbench-form-add">
        <button type="button" onClick={add}>
          Add {/^[aeiou]/.test(what) ? "an" : "a"} {what}
        </button>
      </div>
      <FieldProblems problems={problemsAt(form, name)} />
    </div>
  );
}
