// A controller with a host that records what it is asked for, and details of a run to show.
import type { AnalysisState } from "../src/analysis_data";
import { Controller, type Change } from "../src/controller";
import type { Host } from "../src/host";
import { State, type ViewState } from "../src/state";
import type { Form as Layout } from "../src/subscription";
import type { Theme } from "../src/theme";
import type { Offer, AdviceCard, RunDetail, TrialTable } from "../src/types";

export interface Recorded {
  path: string;
  body: unknown;
}

export const THEME: Theme = {
  name: "light",
  ink: "#000",
  muted: "#666",
  faint: "#999",
  line: "#ccc",
  grid: "#eee",
  surface: "#fff",
  accent: "#00f",
  best: "#0a0",
  states: {},
  categories: ["#111", "#222"],
};

export function buildController(known: Partial<State> = {}, layout: Layout = "wide", view: Partial<ViewState> = {}) {
  const requests: Recorded[] = [];
  const answers: (() => Response)[] = [];
  const changes: Change[] = [];
  const host: Host = {
    baseUrl: "/",
    webSocketUrl: "ws://localhost/",
    request: (path, init) => {
      requests.push({ path, body: init?.body ? JSON.parse(String(init.body)) : null });
      const answer = answers.shift();
      return answer ? Promise.resolve(answer()) : Promise.reject(new Error("no network"));
    },
  };
  const state = Object.assign(new State({ run: "a", ...view }), known);
  const controller = new Controller(state, host, layout, THEME, (change) => changes.push(change));
  const reply = (body: unknown, status = 200) => answers.push(() => new Response(JSON.stringify(body), { status }));
  return { controller, state, requests, changes, reply };
}

export function buildRun(change: Partial<RunDetail> = {}): RunDetail {
  return {
    run_id: "a",
    name: "digits",
    kind: "sweep",
    state: "running",
    reason: null,
    message: null,
    created_unix_s: 0,
    ended_unix_s: null,
    elapsed_s: 60,
    left_s: 30,
    left_low_s: 20,
    left_high_s: 40,
    front: null,
    failures: [],
    progress: 0.5,
    owner: null,
    counts: { running: 1, complete: 2 },
    num_configurations: 3,
    chosen: null,
    best: { trial: 2, values: { val_accuracy: 0.97 }, params: { lr: 0.1 } },
    objectives: [{ metric: "val_accuracy", goal: "maximize", target: null }],
    metrics: ["val_accuracy", "loss"],
    params: ["lr"],
    settings: {},
    experiment_hash: "",
    figures: [],
    card: null,
    loading: null,
    offers: [],
    ...change,
  } as RunDetail;
}

export function buildCard(change: Partial<AdviceCard> = {}): AdviceCard {
  return {
    goal: "fast training",
    rejected: [],
    headline: [{ name: "global batch", text: "256 samples = 128 x 1 accumulated x 2 workers" }],
    gain: { factor: 2, low: 1.6, high: 2.4, words: "the samples/s of the experiment without advice" },
    predicted: [{ name: "step time", text: "59 ms" }],
    why: ["it fits"],
    others: [
      { name: "runner-up", plan: "128 samples = 64 x 1 accumulated x 2 workers", compared: "0.79 times the samples/s" },
    ],
    measured: ["11 plans"],
    exchanges: ["powersgd, approximate: 9 ms a step"],
    would_change: ["more noise"],
    settings: ["plan: {workers: 2}"],
    changes: { "plan.workers": 2, "training.lr": 0.02 },
    ...change,
  };
}

export function buildOffer(kind: Offer["kind"], label: string, dangerous = false): Offer {
  return {
    done_by: "process",
    asks_first: true,
    kind,
    label,
    command: `workbench ${kind} a`,
    python: `wb.attach("a").${kind}()`,
    dangerous,
  };
}

export function buildTable(change: Partial<TrialTable> = {}): TrialTable {
  return {
    columns: [
      { key: "number", label: "trial", kind: "number" },
      { key: "state", label: "state", kind: "state" },
      { key: "value:val_accuracy", label: "val_accuracy", kind: "value", goal: "maximize" },
      { key: "param:lr", label: "lr", kind: "param" },
    ],
    rows: [
      { number: 1, state: "complete", reason: null, is_best: false, cells: [1, "complete", 0.9, 0.01] },
      { number: 2, state: "complete", reason: null, is_best: true, cells: [2, "complete", 0.97, 0.1] },
      { number: 3, state: "failed", reason: "oom", is_best: false, cells: [3, "failed (oom)", null, 1] },
    ],
    offset: 0,
    total: 3,
    ...change,
  };
}

/** Three trials of two parameters: complete, pruned and the best, which has no momentum. */
export function buildAnalysis(change: Partial<AnalysisState> = {}): AnalysisState {
  const axis = { low: 0.0001, high: 1, is_whole: false, levels: [] };
  return {
    trials: Float64Array.of(0, 1, 2),
    standings: ["complete", "pruned", "complete"],
    ranks: Float64Array.of(1, NaN, 0),
    shares: Float64Array.of(0.5, NaN, 1),
    best: Float64Array.of(0.7, NaN, 0.9),
    axes: [
      {
        ...axis,
        name: "lr",
        scale: "log",
        ticks: [[0.5, "0.01"]],
        is_conditional: false,
        places: Float64Array.of(0.5, 0.25, 0.75),
      },
      {
        ...axis,
        name: "momentum",
        scale: "linear",
        low: 0,
        ticks: [],
        is_conditional: true,
        places: Float64Array.of(0.2, 0.4, NaN),
      },
    ],
    objectives: [
      {
        metric: "accuracy",
        title: "accuracy",
        goal: "maximize",
        limits: [],
        base: null,
        values: Float64Array.of(0.7, 0.5, 0.9),
      },
    ],
    grids: [{ x: 0, y: 1, size: 2, values: Float64Array.of(0, 1, 2, 3) }],
    bestTrial: 2,
    front: new Set(),
    chosen: null,
    numLeftOut: 0,
    ...change,
  };
}

/** Trials 0 and 1 are on the front, trial 2 breaks a limit. */
export function buildFront(): AnalysisState {
  const objective = { goal: "minimize" as const, limits: [], base: 5 };
  return buildAnalysis({
    standings: ["complete", "complete", "no_result"],
    objectives: [
      { ...objective, metric: "loss", title: "loss", values: Float64Array.of(1, 2, 1.5) },
      {
        ...objective,
        metric: "latency",
        title: "latency",
        limits: [{ side: "at most", value: 8 }],
        values: Float64Array.of(9, 4, 12),
      },
    ],
    grids: [],
    bestTrial: null,
    front: new Set([0, 1]),
  });
}
