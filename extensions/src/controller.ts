// What the small views share: the state, and everything that can be done.
import type { Host, Level } from "./host";
import { hiddenLook, lookOf, type Form, type Window } from "./look";
import type { State, ViewState } from "./state";
import type { Theme } from "./theme";
import type { Action, Done, Look, Offer, Problem } from "./types";

/** What has changed: which run is shown, what is shown of it, or only what is known. */
export type Change = "run" | "view" | "told";

/** A question to a person; which dialog shows it. */
export type Question =
  | { kind: "start" }
  | { kind: "offer"; offer: Offer; trial: number | null; params: Record<string, unknown> }
  | { kind: "commands"; offers: Offer[]; title: string };

export class ActionError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.problem);
  }
}

const FIRST_WINDOW: Window = { offset: 0, limit: 40 };

export class Controller {
  question: Question | null = null;
  window = FIRST_WINDOW;
  hidden = false;
  theme!: Theme;

  constructor(
    readonly state: State,
    readonly host: Host,
    readonly form: Form,
    private readonly changed: (what: Change) => void,
  ) {}

  look(): Look {
    return this.hidden ? hiddenLook(this.state) : lookOf(this.state, this.form, this.window);
  }

  show(change: Partial<ViewState>): void {
    const { run } = this.state.view;
    this.state.show(change);
    if (change.run !== undefined || change.table !== undefined) this.window = FIRST_WINDOW;
    this.changed(this.state.view.run === run ? "view" : "run");
  }

  showWindow(window: Window): void {
    this.window = window;
    this.changed("view");
  }

  /** A run of the list: a panel shows it beside the list, a tab leaves it to a tab of its own. */
  chooseRun(runId: string): void {
    if (this.form === "panel") this.show({ run: runId });
    else this.openRun(runId);
  }

  openRun(runId: string): void {
    if (this.host.openRun) this.host.openRun(runId);
    else this.show({ run: runId });
  }

  /** Chooses a trial for the chart and shows it in full; `add` keeps those that were chosen before. */
  chooseTrial(trial: number | null, add = false): void {
    const { chart } = this.state.view;
    const chosen = trial === null ? [] : add ? toggled(chart.chosen, trial) : [trial];
    this.show({ trial: add ? this.state.view.trial : trial, chart: { ...chart, chosen } });
  }

  ask(question: Question | null): void {
    this.question = question;
    this.changed("told");
  }

  say(message: string, level: Level): void {
    if (this.host.notify) {
      this.host.notify(message, level);
      return;
    }
    this.state.status = { message, level };
    this.changed("told");
  }

  clearStatus(): void {
    this.state.status = null;
    this.changed("told");
  }

  async act(action: Action): Promise<Done> {
    const done = await this.json<Done>("actions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(action),
    });
    this.say(done.answer ?? "Asked; the run has not answered yet.", "info");
    return done;
  }

  /** Asks the REST interface; a refusal is thrown with the server's words. */
  async json<T>(path: string, init?: RequestInit): Promise<T> {
    const response = await this.host.request(`workbench/api/${path}`, init);
    const text = await response.text();
    if (response.ok) return JSON.parse(text) as T;
    throw new ActionError(problemOf(text, response.status));
  }
}

function toggled(numbers: number[], one: number): number[] {
  return numbers.includes(one) ? numbers.filter((other) => other !== one) : [...numbers, one];
}

function problemOf(text: string, status: number): Problem {
  try {
    const told = JSON.parse(text) as Partial<Problem> & { message?: string };
    if (told.problem) return { ...told, problem: told.problem };
    if (told.message) return { problem: told.message };
  } catch {
    // A proxy may answer with a page instead of a problem.
  }
  return { problem: `The server answered ${status}.` };
}
