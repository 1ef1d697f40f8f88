// Choosing what a section is about: an entry of a list, or a name of one's own.
import type { Json } from "./message_types";
import type { NamedChoice } from "../types";
import { isMapping } from "./space";
import {
  problemsAt,
  FieldProblems,
  Sentence,
  TextInput,
  useUniqueId,
  useTextField,
  type FormProps,
  type TextFieldState,
} from "./text_field";
import { toText } from "./field_values";

interface ChooserProps extends FormProps {
  /** Where the choice is written: model or data. */
  path: "model" | "data";
  label: string;
  offered: NamedChoice[];
  hint: string;
}

export function Chooser({ form, path, label, offered, hint }: ChooserProps) {
  const id = useUniqueId();
  const { document } = form.state;
  const chosen = displayName(document[path]);
  const field = form.state.sections.find((one) => one.name === path)?.fields.find((one) => one.path === path);
  const names = field?.choices?.map(toText) ?? [];
  const problems = [...problemsAt(form, path), ...problemsAt(form, `${path}.name`)];
  const typed = useTextField(form, chosen, (text) => {
    const name = text.trim();
    // A train function brings its own model and data.
    return name
      ? form.edit([[path, name]], `${label}: ${name}`, document.train ? ["train"] : [])
      : form.send({ type: "remove", path });
  });
  return (
    <div class="workbench-form-chooser">
      <div class="workbench-form-own">
        <label for={id}>{label}</label>
        <TextInput
          typed={typed}
          id={id}
          describedBy={`${id}-problem ${id}-help`}
          isWrong={problems.length > 0}
          list={`${id}-list`}
        />
        <datalist id={`${id}-list`}>
          {names.map((one) => (
            <option key={one} value={one} />
          ))}
        </datalist>
        <FieldProblems id={`${id}-problem`} problems={problems} />
        <p id={`${id}-help`} class="workbench-hint">
          {hint}
        </p>
      </div>
      <Cards label={`${label}: of this notebook`} offered={offered.filter(isOwn)} typed={typed} />
      <details
        class="workbench-form-details"
        open={!chosen || offered.some((one) => one.name === chosen && !isOwn(one))}
      >
        <summary>Built in</summary>
        <Cards label={`${label}: built in`} offered={offered.filter((one) => !isOwn(one))} typed={typed} />
      </details>
    </div>
  );
}

function isOwn({ is_own }: NamedChoice): boolean {
  return is_own ?? false;
}

interface CardsProps {
  label: string;
  offered: NamedChoice[];
  typed: TextFieldState;
}

function Cards({ label, offered, typed }: CardsProps) {
  if (!offered.length) return null;
  return (
    <div class="workbench-form-cards" role="group" aria-label={label}>
      {offered.map((one) => (
        <button
          key={one.name}
          type="button"
          class="workbench-form-card"
          aria-pressed={one.name === typed.text}
          onClick={() => typed.choose(one.name)}
        >
          <b>{one.name}</b>
          {one.help ? (
            <span>
              <Sentence text={one.help} />
            </span>
          ) : null}
        </button>
      ))}
    </div>
  );
}

/** A name as a person says it: what was made in a cell is written with the hash of its bytes. */
export function displayName(written: Json | undefined): string {
  const name = isMapping(written) ? written.name : written;
  if (typeof name !== "string") return "";
  return /^embedded:(.+)@[0-9a-f]+$/.exec(name)?.[1] ?? name;
}
