// Machines and what they are doing; no GPU is a state, not an error.
import type { Controller } from "../controller";
import { count, formatBytes } from "../format";
import type { GpuPicture, NodePicture } from "../types";
import { Empty, Meter } from "./pieces";

export function Resources({ controller }: { controller: Controller }) {
  const { resources } = controller.state;
  if (!resources) return <Empty title="Asking the machines …" />;
  if (!resources.nodes.length) return <Empty title="No machine answers" />;
  return (
    <div class="workbench-nodes">
      {resources.nodes.map((node) => (
        <Node key={node.host} node={node} />
      ))}
    </div>
  );
}

function Node({ node }: { node: NodePicture }) {
  return (
    <section class="workbench-node" aria-label={`Machine ${node.host}`}>
      <h2>
        <bdi>{node.host}</bdi>
        <small>{count(node.num_cpus, "CPU")}</small>
      </h2>
      <Meter label="CPU" part={node.cpu_utilisation} />
      <Meter label="Memory" part={node.memory_used_bytes / node.memory_bytes} text={used(node.memory_used_bytes, node.memory_bytes)} />
      {node.gpus.map((gpu) => (
        <Gpu key={gpu.index} gpu={gpu} />
      ))}
      {node.gpus.length ? null : <p class="workbench-muted">No GPU{node.no_gpus_because ? `: ${node.no_gpus_because}` : ""}</p>}
    </section>
  );
}

function Gpu({ gpu }: { gpu: GpuPicture }) {
  const { memory_used_bytes: inUse, memory_bytes: all } = gpu;
  const facts = [
    gpu.power_w == null ? null : `${Math.round(gpu.power_w)} W`,
    gpu.temperature_c == null ? null : `${Math.round(gpu.temperature_c)} °C`,
  ].filter(Boolean);
  return (
    <div class="workbench-gpu" role="group" aria-label={`GPU ${gpu.index}`}>
      <h3>
        GPU {gpu.index} <bdi>{gpu.name}</bdi>
        <small class="workbench-number">{facts.join(" · ")}</small>
      </h3>
      <Meter label="Busy" part={gpu.utilisation ?? null} />
      <Meter label="Memory" part={inUse != null && all ? inUse / all : null} text={used(inUse, all)} />
    </div>
  );
}

function used(part: number | null | undefined, all: number | null | undefined): string {
  return `${formatBytes(part)} of ${formatBytes(all)}`;
}
