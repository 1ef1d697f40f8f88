// Opening and saving experiment files, and starting from one of the presets.
import { useEffect, useState } from "preact/hooks";
import { Dialog, Field } from "../views/components";
import { AsyncResult } from "./async_result";
import type { FormProps } from "./text_field";

export function Files({ form }: FormProps) {
  const [asked, setAsked] = useState<"open" | "save" | null>(null);
  const state = form.state;
  return (
    <>
      {state.presets.length ? (
        <select
          aria-label="Start from a preset"
          value=""
          onChange={(event) => {
            const name = event.currentTarget.value;
            event.currentTarget.value = "";
            if (name) form.send({ type: "preset", name });
          }}
        >
          <option value="">Start from …</option>
          {state.presets.map((one) => (
            <option key={one.name} value={one.name}>
              {one.help ? `${one.name}: ${one.help}` : one.name}
            </option>
          ))}
        </select>
      ) : null}
      <button type="button" onClick={() => setAsked("open")}>
        Open …
      </button>
      <button type="button" onClick={() => setAsked("save")}>
        Save …
      </button>
      {asked ? <FileDialog form={form} action={asked} onClose={() => setAsked(null)} /> : null}
    </>
  );
}

function FileDialog({ form, action, onClose }: FormProps & { action: "open" | "save"; onClose(): void }) {
  const state = form.state;
  const [path, setPath] = useState(
    state.saved_path ?? (action === "save" ? `${nameOf(state.document.name)}.yaml` : ""),
  );
  const [overwrite, setOverwrite] = useState(false);
  const [question, setQuestion] = useState<number | null>(null);
  const isAnswered = question !== null && form.isAnswered(question);
  const answer = form.answer("file");
  const isFailed = isAnswered && answer?.status === "failed";
  const isDone = isAnswered && !isFailed;
  useEffect(() => {
    if (isDone) onClose();
  }, [isDone]);
  return (
    <Dialog title={action === "save" ? "Save as a file" : "Open a file"} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          form.forget("file");
          setQuestion(
            form.send(
              action === "save" ? { type: "save", path: path.trim(), overwrite } : { type: "open", path: path.trim() },
            ),
          );
        }}
      >
        <Field label="Path" hint="A YAML file; relative paths start at the notebook's folder.">
          {(id) => (
            <input
              id={id}
              dir="ltr"
              spellcheck={false}
              value={path}
              onInput={(event) => setPath(event.currentTarget.value)}
            />
          )}
        </Field>
        {action === "save" ? (
          <label class="workbench-check">
            <input
              type="checkbox"
              checked={overwrite}
              onChange={(event) => setOverwrite(event.currentTarget.checked)}
            />
            replace a file that is there
          </label>
        ) : null}
        {isFailed ? <AsyncResult answer={answer} working="" /> : null}
        <div class="workbench-buttons">
          <button type="submit" class="workbench-primary" disabled={!path.trim()}>
            {action === "save" ? "Save" : "Open"}
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function nameOf(name: unknown): string {
  return typeof name === "string" && name ? name : "experiment";
}
