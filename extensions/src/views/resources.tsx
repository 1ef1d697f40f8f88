// Machines and what they are doing; no GPU is a state, not an error.
import type { Controller } from "../controller";
import { formatCount, formatBytes } from "../format";
import type { GpuStatus, NodeStatus } from "../types";
import { Empty, Meter } from "./components";
import { MachineCharts } from "./machine_charts";

const NODE_WORDS = { ok: "", silent: "does not respond", gone: "has left the cluster" };
const GPU_WORDS = {
  ok: "",
  lost: "is lost: it fell off the bus",
  "needs reset": "must be reset",
  "no driver": "has no driver",
  failed: "does not respond",
};

export function Resources({ controller }: { controller: Controller }) {
  const { resources, machines } = controller.state;
  if (!resources) return <Empty title="Reading the machines …" />;
  if (!resources.nodes.length) return <Empty title="No machine responds" />;
  return (
    <>
      <MachineCharts controller={controller} />
      {machines?.nodes.length ? <h2>{resources.of_run ? "Now" : "This machine, now"}</h2> : null}
      <div class="workbench-nodes">
        {resources.nodes.map((node) => (
          <Node key={node.node} node={node} />
        ))}
      </div>
    </>
  );
}

function Node({ node }: { node: NodeStatus }) {
  const facts = [
    formatCount(node.num_cpus, "CPU"),
    node.gpus.length ? formatCount(node.gpus.length, "GPU") : null,
    trials(node.trials),
  ];
  return (
    <section class="workbench-node" aria-label={`Machine ${node.host}`}>
      <h2>
        <bdi>{node.host}</bdi>
        <small>{joined(facts)}</small>
      </h2>
      {node.state === "ok" ? (
        <Doing node={node} />
      ) : (
        <p class="workbench-trouble">This machine {NODE_WORDS[node.state]}.</p>
      )}
    </section>
  );
}

function Doing({ node }: { node: NodeStatus }) {
  const { memory_used_bytes: memory, disk_used_bytes: disk, disk_bytes: diskSize } = node;
  return (
    <>
      <Meter label="CPU" part={node.cpu_utilisation} />
      <Meter
        label="Memory"
        part={memory == null ? null : memory / node.memory_bytes}
        text={used(memory, node.memory_bytes)}
      />
      {disk != null && diskSize ? <Meter label="Disk" part={disk / diskSize} text={used(disk, diskSize)} /> : null}
      {node.network_bytes_per_s == null ? null : (
        <p class="workbench-muted">Network {formatBytes(node.network_bytes_per_s)}/s</p>
      )}
      {node.gpus.map((gpu) => (
        <Gpu key={gpu.index} gpu={gpu} />
      ))}
      {node.gpus.length ? null : (
        <p class="workbench-muted">No GPU{node.no_gpus_because ? `: ${node.no_gpus_because}` : ""}</p>
      )}
    </>
  );
}

function Gpu({ gpu }: { gpu: GpuStatus }) {
  const { memory_used_bytes: inUse, memory_bytes: all } = gpu;
  const facts = [
    gpu.power_w == null ? null : `${Math.round(gpu.power_w)} W`,
    gpu.temperature_c == null ? null : `${Math.round(gpu.temperature_c)} °C`,
    gpu.clock_mhz == null ? null : `${Math.round(gpu.clock_mhz)} MHz`,
    trials(gpu.trials),
  ];
  const traffic = [
    gpu.pcie_bytes_per_s == null ? null : `PCIe ${formatBytes(gpu.pcie_bytes_per_s)}/s`,
    gpu.nvlink_bytes_per_s == null ? null : `NVLink ${formatBytes(gpu.nvlink_bytes_per_s)}/s`,
  ];
  const troubles = [
    gpu.state === "ok" ? null : `This GPU ${GPU_WORDS[gpu.state]}`,
    gpu.slowed_by.length ? `Slowed by ${gpu.slowed_by.join(" and ")}` : null,
    gpu.ecc_uncorrected ? formatCount(gpu.ecc_uncorrected, "uncorrected memory error") : null,
    gpu.xids.length ? `Its driver reports Xid ${gpu.xids.join(", ")}` : null,
  ];
  return (
    <div class="workbench-gpu" role="group" aria-label={`GPU ${gpu.index}`}>
      <h3>
        GPU {gpu.index} <bdi>{gpu.name}</bdi>
        <small class="workbench-number">{joined(facts)}</small>
      </h3>
      {gpu.state === "ok" ? (
        <>
          <Meter label="Busy" part={gpu.utilisation ?? null} />
          <Meter label="Memory" part={inUse != null && all ? inUse / all : null} text={used(inUse, all)} />
          {joined(traffic) ? <p class="workbench-muted">{joined(traffic)}</p> : null}
        </>
      ) : null}
      {joined(troubles) ? <p class="workbench-trouble">{joined(troubles)}</p> : null}
    </div>
  );
}

function trials(numbers: number[]): string | null {
  return numbers.length ? `trial${numbers.length === 1 ? "" : "s"} ${numbers.join(", ")}` : null;
}

function joined(facts: (string | null)[]): string {
  return facts.filter(Boolean).join(" · ");
}

function used(part: number | null | undefined, all: number | null | undefined): string {
  return `${formatBytes(part)} of ${formatBytes(all)}`;
}
