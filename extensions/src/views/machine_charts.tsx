// The machines of a run over time, with the trials that ran on each.
import { useMemo, useState } from "preact/hooks";
import type { Controller } from "../controller";
import { formatCount } from "../format";
import { machineDrawing, machineLines } from "../machine_drawing";
import type { NodeSeries } from "../types";
import { PlotBox } from "./plot_box";

export function MachineCharts({ controller }: { controller: Controller }) {
  const nodes = controller.state.machines?.nodes ?? [];
  if (!nodes.length) return null;
  return (
    <section class="workbench-machine-charts" aria-label="Machines over time">
      <h2>During the run</h2>
      {nodes.map((node) => (
        <MachineChart key={node.node} node={node} controller={controller} />
      ))}
    </section>
  );
}

function MachineChart({ node, controller }: { node: NodeSeries; controller: Controller }) {
  const { theme } = controller;
  const [hidden, setHidden] = useState<string[]>([]);
  const drawing = useMemo(() => machineDrawing(node, theme, hidden), [node, theme, hidden]);
  const lines = useMemo(() => machineLines(node, theme), [node, theme]);
  // Lines belong to no trial, bars do.
  const choose = (key: string) => {
    if (Number.isInteger(Number(key))) controller.chooseTrial(Number(key));
  };
  const toggle = (label: string) =>
    setHidden(hidden.includes(label) ? hidden.filter((one) => one !== label) : [...hidden, label]);
  return (
    <figure class="workbench-machine-chart" aria-label={`Machine ${node.host} over time`}>
      <figcaption>
        <bdi>{node.host}</bdi>
        <span class="workbench-legend">
          {lines.map(({ label, colour, dashed }) => (
            <button
              key={label}
              type="button"
              class="workbench-legend-entry"
              aria-pressed={!hidden.includes(label)}
              onClick={() => toggle(label)}
            >
              <i
                class={`workbench-key${dashed ? " workbench-key-dashed" : ""}`}
                style={{ color: colour }}
                aria-hidden="true"
              />{" "}
              {label}
            </button>
          ))}
          {node.trials.length ? <span>bars: {formatCount(node.trials.length, "trial")}</span> : null}
        </span>
      </figcaption>
      <PlotBox drawing={drawing} theme={theme} label={inWords(node)} onChoose={choose} />
    </figure>
  );
}

function inWords(node: NodeSeries): string {
  const gpus = node.gpus.length ? `, ${formatCount(node.gpus.length, "GPU")}` : "";
  return `CPU, memory${gpus} of ${node.host} over time, with ${formatCount(node.trials.length, "trial")}`;
}
