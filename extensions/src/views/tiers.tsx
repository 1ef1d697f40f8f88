// Tiers beside runs: the files of tiers that the server has, and the plan and the queues of the chosen one.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Controller } from "../controller";
import { App } from "../tiers/app";
import { TiersConnection } from "../tiers/connection";
import { ServerChannel } from "../tiers/server_channel";
import type { ExperimentFile, Problem } from "../types";
import { Code, Empty, ProblemNotice } from "./components";
import { Listed, useFiles } from "./first_steps";
import "../forms/form.css";
import "../tiers/tiers.css";

const LOST = "The server cannot be reached; trying again.";

export function Tiers({ controller }: { controller: Controller }) {
  const { tiers } = controller.state.view;
  return tiers === "" ? <Choice controller={controller} /> : <Shown key={tiers} path={tiers} controller={controller} />;
}

/** The files that there are; without any, one to begin with. */
function Choice({ controller }: { controller: Controller }) {
  const [problem, setProblem] = useState<Problem | null>(null);
  const files = useFiles(controller, setProblem)?.filter(({ kind }) => kind === "tiers");
  if (problem) return <ProblemNotice problem={problem} />;
  if (!files) return <Empty title="Reading the files …" />;
  const choose = ({ path }: ExperimentFile) => controller.show({ tiers: path });
  return (
    <Empty title={files.length ? "Where should the model run?" : "No file of tiers found"}>
      <Listed title="Files of tiers" files={files} choose={choose} />
      <p>
        {files.length ? "Or describe" : "Describe"} machines and links in a YAML file in Jupyter&apos;s root folder:
      </p>
      <Code label="a file of tiers" text={fileFor(controller.state.view.run)} />
    </Empty>
  );
}

function fileFor(run: string | null): string {
  return [
    "tiers:",
    "  end: {count: 1000, machine: here, arrivals: 0.1/s}",
    "  cloud: {count: 2, machine: here, batch: 16}",
    "links:",
    "  end-cloud: {bandwidth: 20Mbit, rtt: 20ms}",
    `place: {from: ${run ?? "last"}/best, scheduler: mapping}`,
  ].join("\n");
}

function Shown({ path, controller }: { path: string; controller: Controller }) {
  const { channel, connection } = useMemo(() => {
    const made = new ServerChannel({
      host: controller.host,
      path,
      onConnected: (isConnected) => connection.noteConnected(isConnected),
    });
    const connection = new TiersConnection(made, LOST);
    return { channel: made, connection };
  }, [path]);
  useEffect(() => {
    channel.connect();
    return () => {
      connection.close();
      channel.close();
    };
  }, [channel]);
  return (
    <div class="workbench-form workbench-tiers workbench-tiers-page">
      <button type="button" class="workbench-link" onClick={() => controller.show({ tiers: "" })}>
        All files of tiers
      </button>
      <App connection={connection} />
    </div>
  );
}
