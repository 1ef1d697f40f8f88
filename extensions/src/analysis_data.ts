// The trials of an analysis in columns, as the server sent them.
import type { Frame } from "./frames";
import type { Analysis, AnalysisAxis, AnalysisGrid, AnalysisObjective, Column } from "./types";

export interface Axis extends Omit<AnalysisAxis, "places"> {
  places: Float64Array;
}

export interface Objective extends Omit<AnalysisObjective, "values"> {
  values: Float64Array;
}

export interface Grid extends Omit<AnalysisGrid, "values"> {
  values: Float64Array;
}

export type Standing = "complete" | "no_result" | "pruned";

export interface AnalysisState {
  trials: Float64Array;
  standings: Standing[];
  ranks: Float64Array;
  shares: Float64Array;
  best: Float64Array;
  axes: Axis[];
  objectives: Objective[];
  grids: Grid[];
  bestTrial: number | null;
  front: Set<number>;
  chosen: number | null;
  numLeftOut: number;
}

const STANDINGS: Standing[] = ["complete", "no_result", "pruned"];

export function analysisOf(frame: Frame, analysis: Analysis): AnalysisState {
  const copy = (column: Column) => Float64Array.from(frame.column(column));
  return {
    trials: copy(analysis.trials),
    standings: [...copy(analysis.standings)].map((code) => STANDINGS[code]),
    ranks: copy(analysis.ranks),
    shares: copy(analysis.shares),
    best: copy(analysis.best),
    axes: analysis.axes.map((axis) => ({ ...axis, places: copy(axis.places) })),
    objectives: analysis.objectives.map((item) => ({ ...item, values: copy(item.values) })),
    grids: analysis.grids.map((grid) => ({ ...grid, values: copy(grid.values) })),
    bestTrial: analysis.best_trial,
    front: new Set(analysis.front),
    chosen: analysis.chosen,
    numLeftOut: analysis.num_left_out,
  };
}
