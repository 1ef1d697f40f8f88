// Starting a run from one of the experiment files that the server offers.
import { useState } from "preact/hooks";
import type { Controller, DialogRequest } from "../controller";
import { parseSettings } from "../format";
import type { Problem } from "../types";
import { problemIn, useSnippet, wordsOf } from "./actions";
import { Dialog, Empty, Field, ProblemNotice, TheSame } from "./components";
import { isStartable, labelOf, useFiles } from "./first_steps";

interface StartDialogProps {
  controller: Controller;
  /** What it begins with: a file or the name of one, or what was typed and why nothing could be started. */
  request: Extract<DialogRequest, { kind: "start" }>;
  onClose(): void;
}

export function StartDialog({ controller, request, onClose }: StartDialogProps) {
  const [chosen, setPath] = useState(request.path);
  const [name, setName] = useState(request.filled?.name ?? "");
  const [settings, setSettings] = useState(request.filled?.settings ?? "");
  const [address, setAddress] = useState(request.filled?.address ?? "");
  const [started, setStarted] = useState<string | null>(null);
  const [problem, setProblem] = useState<Problem | null>(request.problem ?? null);
  const [busy, setBusy] = useState(false);

  const files = useFiles(controller, setProblem)?.filter(isStartable);
  // Settings for an experiment fit no other: where its file is not certain, the user chooses.
  const named = files?.filter((file) => file.name === request.experiment) ?? [];
  const first = request.experiment === undefined ? files?.[0] : named.length === 1 ? named[0] : undefined;
  const path = chosen ?? first?.path ?? "";

  const parsed = parseSettings(settings);
  const called = name.trim() ? { name: name.trim() } : {};
  const there = address.trim() ? { address: address.trim() } : {};
  const action = { kind: "start", arguments: { path, settings: parsed.settings, ...called, ...there } };
  const snippet = useSnippet(controller, action, null);

  /** Checking and storing a run takes seconds, in which the page is free; what is wrong comes back here. */
  const startHere = () => {
    onClose();
    controller.notify(`Starting ${path} …`, "info");
    controller.act(action).then(
      ({ run_id }) => void (run_id && controller.openRun(run_id)),
      (error: unknown) => {
        if (controller.dialog) return controller.notify(`${path}: ${wordsOf(error)}`, "error");
        controller.clearStatus();
        const filled = { name, settings, address };
        controller.openDialog({ kind: "start", path, filled, problem: problemIn(error) });
      },
    );
  };

  const submit = async (event: Event) => {
    event.preventDefault();
    if (parsed.problem) return setProblem({ problem: parsed.problem });
    if (!address.trim()) return startHere();
    setBusy(true);
    setProblem(null);
    try {
      const done = await controller.act(action);
      if (done.run_id) controller.openRun(done.run_id);
      else if (done.answer) return setStarted(done.answer);
      onClose();
    } catch (error) {
      setProblem(problemIn(error));
      setBusy(false);
    }
  };

  const edit = () => {
    controller.host.openForm?.(path);
    onClose();
  };

  return (
    <Dialog title="Start a run" onClose={onClose}>
      {files?.length === 0 ? (
        <Empty title="No experiment files found">
          <p>Save one as a YAML file in Jupyter's root folder.</p>
        </Empty>
      ) : (
        <form onSubmit={submit}>
          <Field label="Experiment file" hint={files?.find((file) => file.path === path)?.help}>
            {(id) => (
              <select id={id} value={path} onChange={(event) => setPath(event.currentTarget.value)} disabled={!files}>
                {path ? null : <option value="">Choose the file of {request.experiment ?? "an experiment"}</option>}
                {files?.map((file) => (
                  <option key={file.path} value={file.path}>
                    {labelOf(file)}
                  </option>
                ))}
              </select>
            )}
          </Field>
          <Field
            label="Settings"
            hint="One NAME=VALUE per line, such as budget.trials=8. Leave empty to use the file as it is."
          >
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
          <Field label="Name" hint="Leave empty to use the experiment's name.">
            {(id) => (
              <input
                id={id}
                dir="auto"
                maxLength={200}
                value={name}
                onInput={(event) => setName(event.currentTarget.value)}
              />
            )}
          </Field>
          <Field
            label="Cluster"
            hint="Leave empty to use this machine. http://HOST:8265 submits the run, HOST:PORT attaches."
            problem={problem?.field === "address" ? problem : null}
          >
            {(id) => (
              <input
                id={id}
                dir="ltr"
                spellcheck={false}
                maxLength={500}
                aria-invalid={problem?.field === "address" || undefined}
                value={address}
                onInput={(event) => setAddress(event.currentTarget.value)}
              />
            )}
          </Field>
          <ProblemNotice problem={problem?.field === "address" ? null : problem} />
          {started ? (
            <p class="workbench-notice" role="status">
              {started}
            </p>
          ) : null}
          <div class="workbench-buttons">
            <button type="submit" class="workbench-primary" disabled={busy || !path}>
              {started ? "Started" : busy ? "Starting …" : "Start"}
            </button>
            {controller.host.openForm ? (
              <button type="button" disabled={!path} title="In a new notebook" onClick={edit}>
                Edit in a form
              </button>
            ) : null}
            <button type="button" onClick={onClose}>
              {started ? "Close" : "Cancel"}
            </button>
          </div>
          <details>
            <summary>Use a terminal or Python instead</summary>
            {snippet ? <TheSame snippet={snippet} name="Start" /> : null}
          </details>
        </form>
      )}
    </Dialog>
  );
}
