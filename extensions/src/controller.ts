// What the small views share: the state, and everything that can be done.
import type { Host, Level } from "./host";
import { intoSlices } from "./slices";
import { hiddenSubscription, subscriptionOf, type Form, type Window } from "./subscription";
import type { State, ViewState } from "./state";
import type { Theme } from "./theme";
import type { Action, Done, Offer, Problem, ActionSnippet, Subscription } from "./types";

/** What a person has changed: which run is shown, or what is shown of it. */
export type Change = "run" | "view";

/** What was typed to start a run. */
export interface StartFields {
  name: string;
  settings: string;
  address: string;
}

/** A question to a person; which dialog shows it. */
export type DialogRequest =
  | { kind: "start"; path?: string; experiment?: string; filled?: StartFields; problem?: Problem }
  | { kind: "offer"; offer: Offer; trial: number | null }
  | { kind: "commands"; offers: Offer[]; title: string };

const JSON_HEADERS = { "Content-Type": "application/json" };

export class ActionError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.problem);
  }
}

const FIRST_WINDOW: Window = { offset: 0, limit: 40 };
const FIRST_RUNS: Window = { offset: 0, limit: 60 };

export class Controller {
  dialog: DialogRequest | null = null;
  window = FIRST_WINDOW;
  runsWindow = FIRST_RUNS;
  hidden = false;

  constructor(
    readonly state: State,
    readonly host: Host,
    readonly form: Form,
    public theme: Theme,
    private readonly changed: (what: Change) => void,
  ) {
    intoSlices(this, ["dialog", "theme"]);
  }

  subscription(): Subscription {
    if (this.hidden) return hiddenSubscription(this.state);
    return subscriptionOf(this.state, this.form, this.window, this.runsWindow);
  }

  show(change: Partial<ViewState>): void {
    const { run } = this.state.view;
    this.state.show(change);
    if (change.run !== undefined || change.table !== undefined) this.window = FIRST_WINDOW;
    if (change.runs !== undefined || change.runsTable !== undefined) this.runsWindow = FIRST_RUNS;
    this.changed(this.state.view.run === run ? "view" : "run");
  }

  /** A run that was deleted is nowhere shown any more. */
  forget(runId: string): void {
    const { view } = this.state;
    this.state.forgetDeleted(runId);
    this.show({ run: view.run === runId ? null : view.run, compared: view.compared.filter((one) => one !== runId) });
  }

  showRunsWindow(window: Window): void {
    this.runsWindow = window;
    this.changed("view");
  }

  showWindow(window: Window): void {
    this.window = window;
    this.changed("view");
  }

  /** A run of the list is shown beside it, unless it has a tab of its own already. */
  selectRun(runId: string): void {
    if (this.form === "panel" || !this.host.revealRun?.(runId)) this.show({ run: runId });
  }

  /** Beside a panel and a notebook a run has a tab; a tab shows it itself. */
  openRun(runId: string): void {
    if (this.form !== "wide" && this.host.openRun) this.host.openRun(runId);
    else this.selectRun(runId);
  }

  /** Tiers take the room of a main area; `path` is a file of tiers, empty for the list of them. */
  openTiers(path = ""): void {
    if (this.form !== "wide" && this.host.openTiers) this.host.openTiers(path);
    else this.show({ tab: "tiers", tiers: path });
  }

  /** Chooses a trial for the chart and shows it in full; `add` keeps those that were chosen before. */
  chooseTrial(trial: number | null, add = false): void {
    const { chart } = this.state.view;
    const chosen = trial === null ? [] : add ? toggled(chart.chosen, trial) : [trial];
    this.show({ trial: add ? this.state.view.trial : trial, chart: { ...chart, chosen } });
  }

  /** The table and the figures show the same trials. */
  filterTrials(text: string): void {
    this.show({ table: { ...this.state.view.table, text } });
  }

  /** Asks for an importance that could not be computed. */
  retryImportance(): void {
    this.state.importanceAttempt += 1;
    this.changed("view");
  }

  openDialog(dialog: DialogRequest | null): void {
    this.dialog = dialog;
  }

  notify(message: string, level: Level): void {
    if (this.host.notify) {
      this.host.notify(message, level);
      return;
    }
    this.state.status = { message, level };
  }

  clearStatus(): void {
    this.state.status = null;
  }

  async act(action: Action): Promise<Done> {
    const done = await this.json<Done>("actions", {
      method: "POST",
      headers: JSON_HEADERS,
      body: JSON.stringify(action),
    });
    this.notify(done.answer ?? "Sent; the run has not confirmed it yet.", "info");
    return done;
  }

  /** The command and the Python of an action; `body` is the action as JSON. */
  snippet(body: string): Promise<ActionSnippet> {
    return this.json("snippets", { method: "POST", headers: JSON_HEADERS, body });
  }

  /** Saves what the server answers as a file. */
  async download(path: string, name: string, body?: unknown): Promise<void> {
    const init = body === undefined ? undefined : { method: "POST", headers: JSON_HEADERS, body: JSON.stringify(body) };
    const response = await this.host.request(`workbench/api/${path}`, init);
    if (!response.ok) throw new ActionError(problemOf(await response.text(), response.status));
    saveFile(await response.blob(), name);
  }

  /** What a file of the REST interface holds; a refusal is thrown with the server's words. */
  async file(path: string): Promise<Blob> {
    const response = await this.host.request(`workbench/api/${path}`);
    if (!response.ok) throw new ActionError(problemOf(await response.text(), response.status));
    return response.blob();
  }

  /** Asks the REST interface; a refusal is thrown with the server's words. */
  async json<T>(path: string, init?: RequestInit): Promise<T> {
    const response = await this.host.request(`workbench/api/${path}`, init);
    const text = await response.text();
    if (response.ok) return JSON.parse(text) as T;
    throw new ActionError(problemOf(text, response.status));
  }
}

/** Offers a file to save. */
export function saveFile(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function toggled(numbers: number[], one: number): number[] {
  return numbers.includes(one) ? numbers.filter((other) => other !== one) : [...numbers, one];
}

function problemOf(text: string, status: number): Problem {
  try {
    const body = JSON.parse(text) as Partial<Problem> & { message?: string };
    if (body.problem) return { ...body, problem: body.problem };
    if (body.message) return { problem: body.message };
  } catch {
    // A proxy may answer with a page instead of a problem.
  }
  return { problem: `The server responded with status ${status}.` };
}
