// Starting a run from one of the experiment files that the server offers.
import { useEffect, useState } from "preact/hooks";
import type { Controller } from "../controller";
import { parseSettings } from "../format";
import { quoted, setting } from "../same";
import type { Problem } from "../types";
import { ProblemNotice } from "./dialogs";
import { problemIn } from "./doing";
import { Code, Dialog, Empty, Field } from "./pieces";

interface ExperimentFile {
  path: string;
  name: string;
}

export function StartDialog({ controller, onClose }: { controller: Controller; onClose(): void }) {
  const [files, setFiles] = useState<ExperimentFile[] | null>(null);
  const [path, setPath] = useState("");
  const [name, setName] = useState("");
  const [settings, setSettings] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    controller.json<ExperimentFile[]>("experiments").then(
      (found) => {
        setFiles(found);
        setPath(found[0]?.path ?? "");
      },
      (error: unknown) => setProblem(problemIn(error)),
    );
  }, []);

  const submit = async (event: Event) => {
    event.preventDefault();
    const parsed = parseSettings(settings);
    if (parsed.problem) return setProblem({ problem: parsed.problem });
    setBusy(true);
    setProblem(null);
    try {
      const named = name.trim() ? { name: name.trim() } : {};
      const done = await controller.act({ kind: "start", arguments: { path, settings: parsed.settings, ...named } });
      if (done.run_id) controller.openRun(done.run_id);
      onClose();
    } catch (error) {
      setProblem(problemIn(error));
      setBusy(false);
    }
  };

  return (
    <Dialog title="Start a run" onClose={onClose}>
      {files?.length === 0 ? (
        <Empty title="The server finds no experiment files">
          <p>Save one as YAML in the folder that Jupyter shows.</p>
        </Empty>
      ) : (
        <form onSubmit={submit}>
          <Field label="Experiment file">
            {(id) => (
              <select id={id} value={path} onChange={(event) => setPath(event.currentTarget.value)} disabled={!files}>
                {files?.map((file) => (
                  <option key={file.path} value={file.path}>
                    {file.path}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field label="Settings" hint="One NAME=VALUE in a line, such as budget.trials=8; empty: as in the file.">
            {(id) => (
              <textarea
                id={id}
                rows={3}
                dir="ltr"
                spellcheck={false}
                value={settings}
                onInput={(event) => setSettings(event.currentTarget.value)}
              />
            )}
          </Field>
          <Field label="Name" hint="Empty: the experiment's.">
            {(id) => (
              <input id={id} dir="auto" maxLength={200} value={name} onInput={(event) => setName(event.currentTarget.value)} />
            )}
          </Field>
          <ProblemNotice problem={problem} />
          <div class="workbench-buttons">
            <button type="submit" class="workbench-primary" disabled={busy || !path}>
              {busy ? "Starting …" : "Start"}
            </button>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
          </div>
          <details>
            <summary>The same from a terminal</summary>
            <Code label="command" text={commandOf(path, settings, name)} />
          </details>
        </form>
      )}
    </Dialog>
  );
}

function commandOf(path: string, settings: string, name: string): string {
  const options = Object.entries(parseSettings(settings).settings).map(([key, value]) => setting(key, value));
  const named = name.trim() ? [`--name ${quoted(name.trim())}`] : [];
  return ["workbench sweep", quoted(path), ...options, ...named].join(" ");
}
