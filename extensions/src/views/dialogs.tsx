// Questions to a person before something is done; each shows the command that does the same.
import { useState } from "preact/hooks";
import type { Controller, Question } from "../controller";
import { formatDuration, parseValue } from "../format";
import { sameAs } from "../same";
import type { Action, Offer, Problem, RunPicture } from "../types";
import { doAction, problemIn } from "./doing";
import { Dialog, Field, ProblemNotice, TheSame } from "./pieces";
import { StartDialog } from "./start";

export function Dialogs({ controller }: { controller: Controller }) {
  const { question } = controller;
  if (!question) return null;
  const close = () => controller.ask(null);
  if (question.kind === "start") return <StartDialog controller={controller} onClose={close} />;
  if (question.kind === "commands") return <CommandsDialog question={question} onClose={close} />;
  return <OfferDialog controller={controller} question={question} onClose={close} />;
}

type CommandsQuestion = Extract<Question, { kind: "commands" }>;
type OfferQuestion = Extract<Question, { kind: "offer" }>;

function CommandsDialog({ question, onClose }: { question: CommandsQuestion; onClose(): void }) {
  return (
    <Dialog title={`Commands for ${question.title}`} onClose={onClose}>
      {question.offers.map((offer) => (
        <section key={offer.kind}>
          <h3>{offer.label}</h3>
          <TheSame same={offer} name={offer.label} />
        </section>
      ))}
    </Dialog>
  );
}

interface OfferDialogProps {
  controller: Controller;
  question: OfferQuestion;
  onClose(): void;
}

function OfferDialog({ controller, question, onClose }: OfferDialogProps) {
  const { offer } = question;
  const fields = fieldsOf(controller, question);
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((one) => [one.key, one.value])));
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const asked = argumentsOf(question, filledIn(fields, values));
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    try {
      await doAction(controller, offer, asked);
      onClose();
    } catch (error) {
      setProblem(problemIn(error));
      setBusy(false);
    }
  };
  return (
    <Dialog title={titleOf(question, controller)} onClose={onClose}>
      <form onSubmit={submit}>
        {EXPLANATIONS[offer.kind] ? <p>{EXPLANATIONS[offer.kind]}</p> : null}
        {fields.map((field) => (
          <Field key={field.key} label={field.label} hint={field.hint}>
            {(id) => (
              <input
                id={id}
                dir="auto"
                value={values[field.key]}
                placeholder={field.otherwise}
                onInput={(event) => setValues({ ...values, [field.key]: event.currentTarget.value })}
              />
            )}
          </Field>
        ))}
        <ProblemNotice problem={problem} />
        {offer.kind === "attach" ? null : (
          <div class="workbench-buttons">
            <button type="submit" class={offer.dangerous ? "workbench-danger" : "workbench-primary"} disabled={busy}>
              {busy ? "Asking …" : offer.label}
            </button>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
          </div>
        )}
      </form>
      <details open={offer.kind === "attach"}>
        <summary>The same from a terminal and from Python</summary>
        <TheSame same={sameOf(offer, controller.state.run?.run_id ?? "", asked)} name={offer.label} />
      </details>
    </Dialog>
  );
}

/** Following and opening are nothing that a server is asked for: the offer says what there is to say. */
function sameOf(offer: Offer, run: string, asked: Record<string, unknown>) {
  if (offer.kind === "attach" || offer.kind === "report") return offer;
  return sameAs({ kind: offer.kind satisfies Action["kind"], run, arguments: asked });
}

const EXPLANATIONS: Partial<Record<Offer["kind"], string>> = {
  stop: "Running trials end now and keep their checkpoints. The run can be resumed later.",
  stop_trial: "The trial ends now and keeps its last checkpoint. The run goes on with other trials.",
  set: "What is left empty stays as it is. The run follows within a second.",
  extend: "The run goes on until the new budget is used up.",
  enqueue: "The run tries this configuration next.",
  replay: "A new run proposes again, in their order, the configurations that this one tried.",
  export: "Writes the configuration, the weights, the command and the environment of a trial.",
  save_report: "Writes the report as one page that needs no network. A file that is there already is kept.",
};

interface FormField {
  key: string;
  label: string;
  value: string;
  hint?: string;
  /** What counts where nothing is filled in; such a field is a text, whatever it looks like. */
  otherwise?: string;
}

function fieldsOf(controller: Controller, question: OfferQuestion): FormField[] {
  const { run } = controller.state;
  switch (question.offer.kind) {
    case "set":
      return limitFields(run?.settings ?? {});
    case "extend":
      return [
        { key: "trials", label: "More trials", value: "10" },
        { key: "time", label: "More time", value: "", hint: "such as 30m or 2h" },
        { key: "plateau", label: "More patience", value: "", hint: "trials without a better one" },
      ];
    case "enqueue":
      return [...new Set([...(run?.params ?? []), ...Object.keys(question.params)])].map((key) => ({
        key,
        label: key,
        value: question.params[key] === undefined ? "" : written(question.params[key]),
      }));
    case "save_report":
      return [placeField("File", `${run?.run_id}-report.html`)];
    case "export":
      return [
        placeField("Folder", question.trial === null ? "best" : `trial-${question.trial}`),
        { key: "trial", label: "Trial", value: question.trial === null ? "" : String(question.trial), hint: "empty: the best" },
      ];
    default:
      return [];
  }
}

function placeField(label: string, otherwise: string): FormField {
  return { key: "to", label, value: otherwise, otherwise, hint: "below the server's own folder" };
}

function limitFields(settings: RunPicture["settings"]): FormField[] {
  const now = (path: keyof RunPicture["settings"]) => {
    const value = settings[path];
    if (value == null) return "no limit now";
    return `now ${path === "budget.time" && typeof value === "number" ? formatDuration(value) : written(value)}`;
  };
  return [
    { key: "concurrency", label: "Trials at once", value: "", hint: now("resources.concurrency") },
    { key: "trials", label: "Trials in all", value: "", hint: now("budget.trials") },
    { key: "time", label: "Time in all", value: "", hint: `${now("budget.time")}; such as 30m or 2h` },
    { key: "plateau", label: "Patience", value: "", hint: `${now("budget.plateau")}; trials without a better one` },
  ];
}

function filledIn(fields: FormField[], values: Record<string, string>): Record<string, unknown> {
  return Object.fromEntries(
    fields.flatMap(({ key, otherwise }) => {
      const text = values[key].trim() || (otherwise ?? "");
      return text ? [[key, otherwise === undefined ? parseValue(text) : text]] : [];
    }),
  );
}

function argumentsOf(question: OfferQuestion, filled: Record<string, unknown>): Record<string, unknown> {
  if (question.offer.kind === "enqueue") return { params: filled };
  if (question.offer.kind === "stop_trial") return { trial: question.trial };
  return filled;
}

function titleOf(question: OfferQuestion, controller: Controller): string {
  const { offer, trial } = question;
  const of = trial === null ? controller.state.run?.name : `trial ${trial}`;
  return `${offer.label}: ${of ?? ""}`;
}

function written(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}
