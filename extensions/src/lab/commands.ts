// The commands of the workbench, and where JupyterLab offers them: palette, launcher, menu, shortcut.
import { InputDialog, Notification } from "@jupyterlab/apputils";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import type { Host } from "../host";
import type { ViewState } from "../state";
import { isStartable } from "../views/first_steps";
import type { Done, ExperimentFile, Problem, RunList } from "../types";
import { openFormNotebook } from "./form_notebook";
import { workbenchIcon } from "./icon";
import { COMMANDS } from "./names";
import type { SidePanel, Tabs } from "./panels";
import type { Services } from "./services";

const CATEGORY = "Workbench";

interface Faces {
  host: Host;
  tabs: Tabs;
  /** Absent where the application has no side bars. */
  panel?: SidePanel;
}

/** Register the commands and put them where people look for them. */
export function addCommands(services: Services, faces: Faces): void {
  const { commands } = services.app;
  commands.addCommand(COMMANDS.open, {
    label: (args) => (args["isPalette"] ? "Open the workbench in a tab" : "Workbench"),
    caption: "Watch and steer training runs",
    icon: workbenchIcon,
    execute: (args) => {
      const run = textOf(args, "run");
      const state = args["state"] as Partial<ViewState> | undefined;
      if (args["isRestored"] === true) return faces.tabs.restore(run, state ?? {});
      return open(services, faces, run, state, args["isBeside"] === true);
    },
  });
  commands.addCommand(COMMANDS.showPanel, {
    label: (args) => (args["isPalette"] ? "Show the runs panel" : "Workbench Panel"),
    icon: (args) => (args["isPalette"] ? undefined : workbenchIcon),
    execute: () => (faces.panel ? faces.panel.show() : open(services, faces, null)),
  });
  commands.addCommand(COMMANDS.openRun, {
    label: "Open a run…",
    execute: async (args) => {
      const run = textOf(args, "run") ?? (await askForRun(faces.host));
      return run === null ? null : open(services, faces, run);
    },
  });
  commands.addCommand(COMMANDS.start, {
    label: "Start a run from an experiment file…",
    execute: async (args) => {
      const run = await start(faces.host, textOf(args, "path"));
      return run === null ? null : open(services, faces, run);
    },
  });
  commands.addCommand(COMMANDS.form, {
    label: (args) => (args["isPalette"] ? "Define an experiment in a form" : "Experiment Form"),
    caption: "Define, advise, run and watch an experiment in a new notebook",
    icon: workbenchIcon,
    execute: (args) => openFormNotebook(services.app, textOf(args, "path") ?? undefined),
  });
  commands.addCommand(COMMANDS.tiers, {
    label: "Place a model on tiers…",
    caption: "Plan and run a model on devices and servers",
    execute: (args) => open(services, faces, null, { tab: "tiers", tiers: textOf(args, "tiers") ?? "" }),
  });
  for (const command of Object.values(COMMANDS)) {
    services.palette?.addItem({ command, category: CATEGORY, args: { isPalette: true } });
  }
  services.launcher?.add({ command: COMMANDS.open, category: "Other", rank: 1 });
  services.launcher?.add({ command: COMMANDS.form, category: "Other", rank: 2 });
}

/** Open a run or the list, in a tab of Lab, or of the browser where the application has no such tabs. */
function open(
  services: Services,
  faces: Faces,
  run: string | null,
  state?: Partial<ViewState>,
  isBeside = false,
): unknown {
  if (services.labShell) return faces.tabs.open(run, state, isBeside);
  const hash = run === null ? "" : `#run=${encodeURIComponent(run)}`;
  window.open(`${faces.host.baseUrl}workbench${hash}`, run ?? "workbench");
  return null;
}

async function askForRun(host: Host): Promise<string | null> {
  const { items } = await get<RunList>(host, "workbench/api/runs?limit=200");
  return choose(
    "Open a run",
    items.map((item) => item.run_id),
    "There are no runs yet.",
  );
}

async function start(host: Host, given: string | null): Promise<string | null> {
  let path = given;
  if (path === null) {
    const offered = await get<ExperimentFile[]>(host, "workbench/api/experiments");
    path = await choose(
      "Start a run",
      offered.filter(isStartable).map((item) => item.path),
      "No experiment files were found.",
    );
  }
  if (path === null) return null;
  const action = { kind: "start", arguments: { path } };
  const headers = { "Content-Type": "application/json" };
  const answer = await host.request("workbench/api/actions", {
    method: "POST",
    headers,
    body: JSON.stringify(action),
  });
  const done = (await answer.json()) as Done | Problem;
  if ("run_id" in done) return done.run_id;
  Notification.error([done.problem, done.next_step].filter(Boolean).join(" "));
  return null;
}

async function choose(title: string, items: string[], otherwise: string): Promise<string | null> {
  if (items.length === 0) {
    Notification.info(otherwise);
    return null;
  }
  return (await InputDialog.getItem({ title, items })).value;
}

async function get<Kind>(host: Host, path: string): Promise<Kind> {
  const answer = await host.request(path);
  if (!answer.ok) throw new Error(`The workbench server responded with ${answer.status} ${answer.statusText}.`);
  return (await answer.json()) as Kind;
}

function textOf(args: ReadonlyPartialJSONObject, name: string): string | null {
  const value = args[name];
  return typeof value === "string" && value ? value : null;
}
