// From an offer of the server to the action that carries it out, and the snippet of an action.
import { useEffect, useState } from "preact/hooks";
import { ActionError, type Controller } from "../controller";
import type { Action, Done, Offer, Problem, ActionSnippet } from "../types";

const SNIPPET_DELAY_MS = 200;

/** Does an offer that needs no dialog, and returns when it is answered; a refusal is shown as a message. */
export async function doOffer(controller: Controller, offer: Offer): Promise<void> {
  if (offer.done_by === "page") return openReport(controller);
  try {
    await doAction(controller, actionOf(controller, offer));
  } catch (error) {
    controller.notify(wordsOf(error), "error");
  }
}

/** The action of an offer; `filled` holds what was filled in, by argument. */
export function actionOf(controller: Controller, offer: Offer, filled: Record<string, unknown> = {}): Action {
  return { kind: offer.kind, run: controller.state.run?.run_id, arguments: { ...offer.arguments, ...filled } };
}

export async function doAction(controller: Controller, action: Action): Promise<Done> {
  const done = await controller.act(action);
  if (action.kind === "delete" && done.run_id) {
    controller.forget(done.run_id);
    return done;
  }
  if (done.run_id && done.run_id !== controller.state.view.run) controller.openRun(done.run_id);
  return done;
}

/** The snippet of an action that is being filled in, as the server writes it; while its input is wrong, the last one. */
export function useSnippet(controller: Controller, action: Action, first: ActionSnippet | null): ActionSnippet | null {
  const [snippet, setSnippet] = useState(first);
  const body = JSON.stringify(action);
  useEffect(() => {
    let isCurrent = true;
    const timer = setTimeout(() => {
      controller.snippet(body).then(
        (found) => isCurrent && setSnippet(found),
        () => undefined,
      );
    }, SNIPPET_DELAY_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [controller, body]);
  return snippet;
}

function openReport(controller: Controller): void {
  const run = controller.state.run;
  if (!run) return;
  window.open(
    `${controller.host.baseUrl}workbench/api/runs/${encodeURIComponent(run.run_id)}/report`,
    "_blank",
    "noopener",
  );
}

export function problemIn(error: unknown): Problem {
  if (error instanceof ActionError) return error.problem;
  return { problem: error instanceof Error ? error.message : String(error) };
}

export function wordsOf(error: unknown): string {
  const { problem, allowed, next_step } = problemIn(error);
  return [problem, allowed ? `Allowed: ${allowed}` : null, next_step].filter(Boolean).join(" ");
}

/** Saves what the server answers as a file; what goes wrong is shown. */
export function saveAs(controller: Controller, path: string, name: string, body?: unknown): void {
  controller.download(path, name, body).catch((error: unknown) => controller.notify(wordsOf(error), "error"));
}
