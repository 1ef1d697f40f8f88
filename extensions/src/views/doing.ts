// From an offer of the server to the action that carries it out.
import { ActionError, type Controller } from "../controller";
import type { Action, Done, Offer, Problem } from "../types";

const ASKS_FOR_MORE = new Set<Offer["kind"]>(["extend", "set", "enqueue", "replay", "save_report", "export", "attach"]);

/** Whether a person is asked: it cannot be taken back, or something has to be filled in. */
export function asksFirst(offer: Offer): boolean {
  return Boolean(offer.dangerous) || ASKS_FOR_MORE.has(offer.kind);
}

/** Does an offer that needs no more words; a refusal is said aloud. */
export function doOffer(controller: Controller, offer: Offer): void {
  if (offer.kind === "report") openReport(controller);
  else void doAction(controller, offer, {}).catch((error: unknown) => controller.say(wordsOf(error), "error"));
}

export async function doAction(
  controller: Controller,
  offer: Offer,
  offered: Record<string, unknown>,
): Promise<Done> {
  const done = await controller.act({
    kind: offer.kind as Action["kind"],
    run: controller.state.run?.run_id,
    arguments: offered,
  });
  if (done.run_id && done.run_id !== controller.state.view.run) controller.openRun(done.run_id);
  return done;
}

function openReport(controller: Controller): void {
  const run = controller.state.run;
  if (!run) return;
  window.open(`${controller.host.baseUrl}workbench/api/runs/${encodeURIComponent(run.run_id)}/report`, "_blank", "noopener");
}

export function problemIn(error: unknown): Problem {
  if (error instanceof ActionError) return error.problem;
  return { problem: error instanceof Error ? error.message : String(error) };
}

export function wordsOf(error: unknown): string {
  const { problem, allowed, next_step } = problemIn(error);
  return [problem, allowed ? `Allowed: ${allowed}` : null, next_step].filter(Boolean).join(" ");
}
