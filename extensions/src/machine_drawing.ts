// What the chart of a machine draws: how busy it was, and the trials that ran on it.
import { Curve } from "./curve";
import type { Drawing, Line, Span } from "./drawing";
import type { Theme } from "./theme";
import type { NodeSeries } from "./types";

/** Colours of CPU and memory; those of GPUs follow. */
const CPU_COLOUR = 1;
const MEMORY_COLOUR = 3;
const FIRST_GPU_COLOUR = 4;

export function machineDrawing(node: NodeSeries, theme: Theme, hidden: readonly string[] = []): Drawing {
  const last = node.time_s[node.time_s.length - 1] ?? 0;
  return {
    lines: machineLines(node, theme).filter(({ label }) => !hidden.includes(label)),
    spans: { bars: node.trials.map((one) => spanOf(one, last, theme)), numLanes: node.num_lanes },
    band: null,
    target: null,
    xTitle: "Run time",
    yName: "in use:",
    yKind: "percent",
    yRange: null,
    yLimits: [0, 1],
    xKind: "seconds",
    logarithmic: false,
  };
}

export function machineLines(node: NodeSeries, theme: Theme): Line[] {
  const x = Float64Array.from(node.time_s);
  const lineOf = (label: string, values: (number | null)[], colour: number, dashed = false): Line => ({
    key: label,
    label,
    curve: Curve.of(
      x,
      Float64Array.from(values, (value) => value ?? NaN),
    ),
    colour: theme.categories[colour % theme.categories.length],
    width: 1.8,
    opacity: 1,
    dashed,
  });
  const lines = [lineOf("CPU", node.cpu, CPU_COLOUR), lineOf("memory", node.memory, MEMORY_COLOUR, true)];
  node.gpus.forEach((gpu, index) => {
    lines.push(lineOf(`GPU ${gpu.index}`, gpu.utilisation, FIRST_GPU_COLOUR + index));
    lines.push(lineOf(`memory of GPU ${gpu.index}`, gpu.memory, FIRST_GPU_COLOUR + index, true));
  });
  return lines.filter(({ curve }) => curve.isVisible);
}

function spanOf(one: NodeSeries["trials"][number], last: number, theme: Theme): Span {
  return {
    key: String(one.trial),
    label: `Trial ${one.trial}, ${one.state}`,
    name: String(one.trial),
    from: one.begin_s,
    to: one.end_s ?? Math.max(last, one.begin_s),
    lane: one.lane,
    colour: theme.states[one.state] ?? theme.muted,
  };
}
