// What to begin with where there are no runs: an example at one click, the files that are there, a form.
import { Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Controller } from "../controller";
import type { ExperimentFile, Problem } from "../types";
import { doAction, problemIn } from "./actions";
import { Code, Empty, ProblemNotice } from "./components";

const MAX_SHOWN = 5;
const EXAMPLE = "digits";
const FORM = "import workbench as wb\nwb.app()";

/** The files that the server offers; null until it has answered. */
export function useFiles(controller: Controller, onProblem: (problem: Problem) => void): ExperimentFile[] | null {
  const [files, setFiles] = useState<ExperimentFile[] | null>(null);
  useEffect(() => {
    controller.json<ExperimentFile[]>("experiments").then(setFiles, (error: unknown) => onProblem(problemIn(error)));
  }, []);
  return files;
}

export function FirstSteps({ controller }: { controller: Controller }) {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isBusy, setIsBusy] = useState(false);
  const files = useFiles(controller, setProblem) ?? [];
  const examples = files.filter((file) => file.kind === "example");
  const canShowTiers = controller.form === "wide" || controller.host.openTiers !== undefined;
  const example = examples.find((file) => file.name === EXAMPLE) ?? examples[0];
  const run = async (path: string) => {
    setIsBusy(true);
    setProblem(null);
    try {
      await doAction(controller, { kind: "start", arguments: { path } });
    } catch (error) {
      setProblem(problemIn(error));
    }
    setIsBusy(false);
  };
  const { openFile, openForm } = controller.host;
  return (
    <Empty title="No runs yet">
      {example ? (
        <>
          <button
            type="button"
            class="workbench-primary"
            disabled={isBusy}
            title={`workbench sweep ${example.path}`}
            onClick={() => void run(example.path)}
          >
            {isBusy ? "Starting …" : "Run an example"}
          </button>
          <p class="workbench-hint">{example.help}</p>
        </>
      ) : null}
      <ProblemNotice problem={problem} />
      <Listed
        title="Experiments"
        files={files.filter((file) => isStartable(file) && file !== example)}
        choose={({ path }) => controller.openDialog({ kind: "start", path })}
      />
      <Listed
        title="Notebooks"
        files={files.filter((file) => file.kind === "notebook")}
        choose={openFile && (({ path }) => openFile.call(controller.host, path))}
      />
      <Listed
        title="Tiers"
        files={files.filter((file) => file.kind === "tiers")}
        choose={canShowTiers ? ({ path }) => controller.openTiers(path) : undefined}
      />
      <h3>Your own model and data</h3>
      {openForm ? (
        <button type="button" onClick={() => openForm.call(controller.host)}>
          Fill in a form
        </button>
      ) : (
        <>
          <p>Fill in a form, in a notebook:</p>
          <Code label="Python" text={FORM} />
        </>
      )}
    </Empty>
  );
}

interface ListedProps {
  title: string;
  files: ExperimentFile[];
  /** Absent: they cannot be opened from here. */
  choose?(file: ExperimentFile): void;
}

export function Listed({ title, files, choose }: ListedProps) {
  if (!files.length) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul class="workbench-first-files">
        {files.slice(0, MAX_SHOWN).map((file) => (
          <li key={file.path}>
            {choose ? (
              <button
                type="button"
                class="workbench-link"
                title={file.help || file.path}
                aria-label={labelOf(file)}
                onClick={() => choose(file)}
              >
                <FileName text={labelOf(file)} />
              </button>
            ) : (
              <FileName text={file.path} />
            )}
          </li>
        ))}
        {files.length > MAX_SHOWN ? <li class="workbench-muted">and {files.length - MAX_SHOWN} more</li> : null}
      </ul>
    </>
  );
}

/** A long one breaks between its words. */
function FileName({ text }: { text: string }) {
  return (
    <>
      {text.split(/(?<=[/_.-])/).map((part, at) => (
        <Fragment key={at}>
          {at ? <wbr /> : null}
          {part}
        </Fragment>
      ))}
    </>
  );
}

/** Whether a run can be started from it. */
export function isStartable({ kind }: Pick<ExperimentFile, "kind">): boolean {
  return kind === "experiment" || kind === "example" || kind === undefined;
}

/** An example that lies elsewhere goes by its name. */
export function labelOf({ path, name, kind }: ExperimentFile): string {
  return kind === "example" ? `${name} (example)` : path;
}
