// The one state of a view: what the user chose to see, and what the server has sent of it. Each field is a
// slice, which draws the views that read it.
import { batch } from "@preact/signals";
import { analysisOf, type AnalysisState } from "./analysis_data";
import { Curve } from "./curve";
import { FrameError, type Frame } from "./frames";
import type { Level } from "./host";
import { intoSlices } from "./slices";
import type { Connection } from "./transport";
import type {
  Importance,
  Matching,
  Problem,
  MachinesHistory,
  MachinesStatus,
  ComparedRun,
  Comparison,
  ComparisonQuery,
  RunItem,
  RunList,
  RunsQuery,
  ChartQuery,
  ChartUpdate,
  Column,
  LogLine,
  RunDetail,
  TrialTable,
  TrialDetail,
  TrialLog,
  TrialLogQuery,
  TrialRow,
  Subscription,
} from "./types";

export type RunState = RunItem["state"];
export type TrialState = TrialRow["state"];
export type Tab =
  "result" | "curves" | "throughput" | "analysis" | "advice" | "log" | "compare" | "resources" | "tiers";

/** How the curves are drawn, which only this front end knows. */
export interface ChartLooks {
  chosen: number[];
  logarithmic: boolean;
  /** Whether values are drawn by how far they are from the best one. */
  distance: boolean;
  /** Weight of what came before in a running mean, from 0 to below 1. */
  smoothing: number;
  /** Ends of the vertical axis; null for where the data ends. */
  low: number | null;
  high: number | null;
  /** Keys of the legend that are switched off. */
  hidden: string[];
  /** Metrics that are drawn in charts of their own. */
  further: string[];
  /** Whether the metric of training is drawn with that of validation, and the other way round. */
  withOther: boolean;
}

/** The runs as a table over the whole width; `params` are columns with values of the best trial of each. */
export interface RunsTable {
  isShown: boolean;
  params: string[];
  hasTags: boolean;
  /** What groups the runs, as the server takes it; empty for none. */
  group: string;
  /** The group whose runs are listed; null for all. */
  member: string | null;
}

/** What survives a reload. */
export interface ViewState {
  run: string | null;
  /** null: the first that the run offers. */
  tab: Tab | null;
  chart: Required<Pick<ChartQuery, "metric" | "axis" | "shown">> & ChartLooks;
  /** `columns`: keys in their order; none means all that are not empty. */
  table: { sort: string; descending: boolean; text: string; states: TrialState[]; columns: string[] };
  runs: Required<Pick<RunsQuery, "text" | "archive" | "pinned" | "tags" | "sort">> & { states: RunState[] };
  /** Whether a run takes one line of the list. */
  denseRuns: boolean;
  runsTable: RunsTable;
  trial: number | null;
  trialLog: Required<TrialLogQuery>;
  /** A figure of the server, below those that are drawn here; empty for none. */
  figure: string;
  /** The parameter that colours the trials in figures; empty for none. */
  figureColour: string;
  /** Whether the figures have logarithmic axes for what the run optimises. */
  figureLogarithmic: boolean;
  /** How the objective over two parameters is drawn. */
  figurePairs: "contour" | "rank";
  compared: string[];
  comparison: Required<Pick<ComparisonQuery, "metric" | "axis">> & { everything: boolean };
  /** The file of tiers that is shown; empty for none. */
  tiers: string;
}

/** What is forgotten of the chart when another run is shown. */
const OF_ONE_RUN = { metric: "", axis: "" as const, chosen: [], low: null, high: null, further: [], withOther: false };

export const FIRST_VIEW: ViewState = {
  run: null,
  tab: null,
  chart: {
    metric: "",
    axis: "",
    shown: "best",
    chosen: [],
    logarithmic: false,
    distance: false,
    smoothing: 0,
    low: null,
    high: null,
    hidden: [],
    further: [],
    withOther: false,
  },
  table: { sort: "number", descending: false, text: "", states: [], columns: [] },
  runs: { text: "", states: [], tags: [], archive: "without", pinned: false, sort: "newest" },
  denseRuns: false,
  runsTable: { isShown: false, params: [], hasTags: true, group: "", member: null },
  trial: null,
  trialLog: { rank: 0, text: "" },
  figure: "",
  figureColour: "",
  figureLogarithmic: false,
  figurePairs: "contour",
  compared: [],
  comparison: { metric: "", axis: "time", everything: false },
  tiers: "",
};

/** The curves that are held for the chart, with what was last received about them. */
export interface ChartState {
  update: ChartUpdate;
  curves: Map<number, Curve>;
  band: { x: Float64Array; low: Float64Array; middle: Float64Array; high: Float64Array; numTrials: number } | null;
  best: Curve | null;
}

export interface ComparedCurve {
  run: ComparedRun;
  curve: Curve;
}

export interface ComparisonState {
  update: Comparison;
  curves: ComparedCurve[];
}

export interface Status {
  message: string;
  level: Level;
}

const MAX_LOG_LINES = 1000;

export class State {
  view: ViewState;
  connection: Connection = "paused";
  connectionMessage = "";
  problem: Problem | null = null;
  runs: RunList | null = null;
  run: RunDetail | null = null;
  chart: ChartState | null = null;
  /** Charts of further metrics, by metric. */
  further = new Map<string, ChartState>();
  table: TrialTable | null = null;
  analysis: AnalysisState | null = null;
  importance: Importance | null = null;
  matching: Matching | null = null;
  /** How often a person asked again for an importance that could not be computed. */
  importanceAttempt = 0;
  trial: TrialDetail | null = null;
  trialLog: TrialLog | null = null;
  log: LogLine[] = [];
  logSkipped = 0;
  logSeq = 0;
  compared: ComparisonState | null = null;
  resources: MachinesStatus | null = null;
  machines: MachinesHistory | null = null;
  status: Status | null = null;
  /** What ages are counted to; a view counts it on while somebody sees it. */
  nowUnixS = Date.now() / 1000;

  constructor(view: Partial<ViewState> = {}) {
    // What was kept by an earlier version may lack a part.
    const parts = {
      runs: { ...FIRST_VIEW.runs, ...view.runs },
      table: { ...FIRST_VIEW.table, ...view.table },
      chart: { ...FIRST_VIEW.chart, ...view.chart },
      runsTable: { ...FIRST_VIEW.runsTable, ...view.runsTable },
    };
    this.view = { ...FIRST_VIEW, ...view, ...parts };
    intoSlices(this);
  }

  /**
   * Changes what is shown. What belongs to another run is forgotten; all else is kept, because the server
   * does not tell again what it has told.
   */
  show(change: Partial<ViewState>): void {
    batch(() => {
      const before = this.view;
      this.view = { ...before, ...change };
      if (this.view.run !== before.run) this.forgetRun(change);
    });
  }

  forgetDeleted(runId: string): void {
    if (!this.runs) return;
    const items = this.runs.items.filter((item) => item.run_id !== runId);
    this.runs = { ...this.runs, items, total: this.runs.total - (this.runs.items.length - items.length) };
  }

  private forgetRun(change: Partial<ViewState>): void {
    const { tab } = this.view;
    this.view = {
      ...this.view,
      // What there is first is a matter of each run.
      tab: change.tab ?? (tab === "curves" || tab === "result" ? null : tab),
      trial: change.trial ?? null,
      figureColour: "",
      chart: { ...this.view.chart, ...OF_ONE_RUN, ...change.chart },
      table: { ...FIRST_VIEW.table, ...change.table },
    };
    this.run = null;
    this.chart = null;
    this.further = new Map();
    this.table = null;
    this.analysis = null;
    this.importance = null;
    this.matching = null;
    this.importanceAttempt = 0;
    this.trial = null;
    this.trialLog = null;
    this.machines = null;
    this.log = [];
    this.logSkipped = 0;
    this.logSeq = 0;
    this.problem = null;
  }

  /** Takes what a frame tells. Where it answers a look at another run, what it tells of that is nothing. */
  apply(frame: Frame, subscription: Subscription): void {
    batch(() => this.applyParts(frame, subscription));
  }

  private applyParts(frame: Frame, subscription: Subscription): void {
    const { update } = frame;
    if (update.runs) this.runs = update.runs;
    if (update.resources) this.resources = update.resources;
    if (update.compared) this.applyCompared(frame, update.compared);
    if ((subscription.run ?? null) !== this.view.run) return;
    this.problem = update.problem ?? null;
    if (update.run) this.run = update.run;
    if (update.table) this.table = update.table;
    if (update.analysis) this.analysis = analysisOf(frame, update.analysis);
    if (update.importance) this.importance = update.importance;
    if (update.matching) this.matching = update.matching;
    if (update.trial) this.trial = update.trial;
    if (update.trial_log) this.trialLog = update.trial_log;
    if (update.machines) this.machines = update.machines;
    if (update.log) this.applyLog(update.log);
    if (update.chart) this.chart = this.applyChart(frame, update.chart, this.chart);
    this.applyFurther(frame, subscription.chart?.further ?? []);
  }

  private applyFurther(frame: Frame, wanted: string[]): void {
    const updates = frame.update.further ?? [];
    if (!updates.length && [...this.further.keys()].every((metric) => wanted.includes(metric))) return;
    const further = new Map(this.further);
    for (const update of updates) {
      further.set(update.metric, this.applyChart(frame, update, further.get(update.metric) ?? null));
    }
    for (const metric of this.further.keys()) if (!wanted.includes(metric)) further.delete(metric);
    this.further = further;
  }

  private applyLog(log: { lines: LogLine[]; skipped: number; last_seq: number }): void {
    const fresh = log.lines.filter((line) => line.seq > this.logSeq);
    if (this.logSeq === 0) this.logSkipped = log.skipped;
    this.logSeq = Math.max(this.logSeq, log.last_seq);
    if (!fresh.length) return;
    const all = [...this.log, ...fresh];
    this.logSkipped += Math.max(0, all.length - MAX_LOG_LINES);
    this.log = all.slice(-MAX_LOG_LINES);
  }

  private applyCompared(frame: Frame, update: Comparison): void {
    const curves = update.runs.map((run) => ({ run, curve: Curve.of(frame.column(run.x), frame.column(run.y)) }));
    this.compared = { update, curves };
  }

  private applyChart(frame: Frame, update: ChartUpdate, held: ChartState | null): ChartState {
    const isContinued = held && held.update.metric === update.metric && held.update.axis === update.axis;
    const curves = isContinued ? held.curves : new Map<number, Curve>();
    const shown = new Set(update.shown);
    for (const trial of [...curves.keys()]) if (!shown.has(trial)) curves.delete(trial);
    for (const one of update.curves) {
      const curve = curves.get(one.trial) ?? new Curve();
      if (!curve.splice(one.start, frame.column(one.x), frame.column(one.y))) {
        throw new FrameError(`points of trial ${one.trial} are missing`);
      }
      curves.set(one.trial, curve);
    }
    const { band, best } = update.is_overview || !isContinued ? overviewOf(frame, update) : held;
    return { update, curves, band, best };
  }
}

function overviewOf(frame: Frame, { band, best }: ChartUpdate): Pick<ChartState, "band" | "best"> {
  const copy = (column: Column) => Float64Array.from(frame.column(column));
  return {
    band: band
      ? {
          x: copy(band.x),
          low: copy(band.low),
          middle: copy(band.middle),
          high: copy(band.high),
          numTrials: band.num_trials,
        }
      : null,
    best: best ? Curve.of(frame.column(best.x), frame.column(best.y)) : null,
  };
}
