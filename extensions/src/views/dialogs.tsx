// Dialogs that ask before something is done; each shows the command and the Python that do the same.
import { useEffect, useState } from "preact/hooks";
import type { Controller, DialogRequest } from "../controller";
import { parseValue } from "../format";
import type { OfferField, Problem, SizeOfRun } from "../types";
import { actionOf, doAction, problemIn, useSnippet, wordsOf } from "./actions";
import { Dialog, Field, ProblemNotice, TheSame } from "./components";
import { StartDialog } from "./start_dialog";

export function Dialogs({ controller }: { controller: Controller }) {
  const { dialog: request } = controller;
  if (!request) return null;
  const close = () => controller.openDialog(null);
  if (request.kind === "start") return <StartDialog controller={controller} request={request} onClose={close} />;
  if (request.kind === "commands") return <CommandsDialog request={request} onClose={close} />;
  return <OfferDialog controller={controller} request={request} onClose={close} />;
}

type CommandsRequest = Extract<DialogRequest, { kind: "commands" }>;
type OfferRequest = Extract<DialogRequest, { kind: "offer" }>;

function CommandsDialog({ request, onClose }: { request: CommandsRequest; onClose(): void }) {
  return (
    <Dialog title={`Commands for ${request.title}`} onClose={onClose}>
      {request.offers.map((offer) => (
        <section key={offer.kind}>
          <h3>{offer.label}</h3>
          <TheSame snippet={offer} name={offer.label} />
        </section>
      ))}
    </Dialog>
  );
}

interface OfferDialogProps {
  controller: Controller;
  request: OfferRequest;
  onClose(): void;
}

function OfferDialog({ controller, request, onClose }: OfferDialogProps) {
  const { offer } = request;
  const fields = offer.fields ?? [];
  const [values, setValues] = useState(() =>
    Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""])),
  );
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const action = actionOf(controller, offer, filledIn(fields, values));
  const snippet = useSnippet(controller, action, offer);
  const isDone = offer.done_by !== "nobody";
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await doAction(controller, action);
      onClose();
    } catch (error) {
      setProblem(problemIn(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={titleOf(request, controller)} onClose={onClose}>
      <form onSubmit={submit}>
        {offer.explanation ? <p>{offer.explanation}</p> : null}
        {offer.frees_space ? <Freed controller={controller} /> : null}
        {fields.map((field) => (
          <Field key={field.name} label={field.label} hint={field.hint}>
            {(id) => (
              <FieldInput
                id={id}
                field={field}
                value={values[field.name]}
                onInput={(text) => setValues({ ...values, [field.name]: text })}
              />
            )}
          </Field>
        ))}
        <ProblemNotice problem={problem} />
        {isDone ? (
          <div class="workbench-buttons">
            <button type="submit" class={offer.dangerous ? "workbench-danger" : "workbench-primary"} disabled={busy}>
              {busy ? "Sending …" : offer.label}
            </button>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
          </div>
        ) : null}
      </form>
      <details open={!isDone}>
        <summary>Use a terminal or Python instead</summary>
        <TheSame snippet={snippet ?? offer} name={offer.label} />
      </details>
    </Dialog>
  );
}

/** What was filled in, by argument; an empty field counts as its fallback, or not at all. */
function filledIn(fields: readonly OfferField[], values: Record<string, string>): Record<string, unknown> {
  const filled: Record<string, unknown> = {};
  for (const field of fields) {
    const text = values[field.name].trim() || (field.fallback ?? "");
    const value = field.is_list ? listOf(text) : field.is_text ? text : parseValue(text);
    if (field.part_of) {
      const group = (filled[field.part_of] ??= {}) as Record<string, unknown>;
      if (text) group[field.name] = value;
    } else if (text || field.may_be_empty) filled[field.name] = value;
  }
  return filled;
}

function listOf(text: string): string[] {
  return text
    .split(",")
    .map((one) => one.trim())
    .filter(Boolean);
}

interface FieldInputProps {
  id: string;
  field: OfferField;
  value: string;
  onInput(text: string): void;
}

function FieldInput({ id, field, value, onInput }: FieldInputProps) {
  if (field.is_long) {
    return (
      <textarea id={id} dir="auto" rows={6} value={value} onInput={(event) => onInput(event.currentTarget.value)} />
    );
  }
  if (field.choices?.length) {
    return (
      <select id={id} value={value} onChange={(event) => onInput(event.currentTarget.value)}>
        <option value="" />
        {field.choices.map((choice) => (
          <option key={choice} value={choice}>
            {choice}
          </option>
        ))}
      </select>
    );
  }
  return (
    <input
      id={id}
      dir="auto"
      value={value}
      placeholder={field.fallback ?? undefined}
      onInput={(event) => onInput(event.currentTarget.value)}
    />
  );
}

/** What deleting the run would free; measuring may take a moment. */
function Freed({ controller }: { controller: Controller }) {
  const [text, setText] = useState("Measuring what that frees …");
  const runId = controller.state.run?.run_id;
  useEffect(() => {
    if (!runId) return;
    controller.json<SizeOfRun>(`runs/${encodeURIComponent(runId)}/size`).then(
      (size) => setText(`Frees ${size.text}.`),
      (error: unknown) => setText(`What that frees is not known: ${wordsOf(error)}`),
    );
  }, [controller, runId]);
  return <p>{text}</p>;
}

function titleOf(request: OfferRequest, controller: Controller): string {
  const { offer, trial } = request;
  const of = trial === null ? controller.state.run?.name : `trial ${trial}`;
  return `${offer.label}: ${of ?? ""}`;
}
