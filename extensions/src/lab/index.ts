// The workbench in JupyterLab: a side panel, tabs, commands, settings and notifications around the one view.
// Nothing here draws, and nothing runs before it is seen: the view is mounted at its first sight.
import type { JupyterFrontEndPlugin } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";

import type { Host } from "../host";
import { addCommands } from "./commands";
import { formsInNotebooks } from "./form_output";
import { labHost, offer } from "./host";
import { COMMANDS, PLUGIN_ID } from "./names";
import { SidePanel, Tabs } from "./panels";
import { namedServices, optionalTokens, type Services } from "./services";
import { LiveSettings } from "./settings";

const SHOWN_FOR_MS = { info: 4_000, success: 10_000, warning: 10_000, error: 10_000 };

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN_ID,
  description: "Watch and steer training runs.",
  autoStart: true,
  optional: optionalTokens,
  activate: (app, ...came) => activate(namedServices(app, came)),
};

function activate(services: Services): void {
  const settings = new LiveSettings();
  const revealRun = (run: string): boolean => tabs.reveal(run);
  offer({ ...abilities(services, settings), revealRun });
  const host = labHost();
  const tabs = new Tabs(services, host, settings);
  const panel = services.labShell && new SidePanel(services, host, settings);
  addCommands(services, { host, tabs, panel });
  services.app.docRegistry.addWidgetExtension("Notebook", formsInNotebooks);
  if (services.settingRegistry) {
    settings
      .follow(services.settingRegistry, ({ side }) => panel?.place(side))
      .catch((error: unknown) => console.warn("The workbench settings could not be read.", error));
  }
}

/** What JupyterLab does for the view when a person asks for more than it shows. */
function abilities({ app, labShell }: Services, settings: LiveSettings): Partial<Host> {
  return {
    openFile: (path) => void app.commands.execute("docmanager:open", { path }),
    openForm: (path) => void app.commands.execute(COMMANDS.form, path === undefined ? {} : { path }),
    openRun: labShell && ((run, isBeside = false) => void app.commands.execute(COMMANDS.open, { run, isBeside })),
    openTiers: labShell && ((tiers) => void app.commands.execute(COMMANDS.tiers, { tiers })),
    notify: (message, level) => {
      const isWanted = settings.current.notifications || level === "info";
      if (isWanted) Notification.emit(message, level, { autoClose: SHOWN_FOR_MS[level] });
    },
  };
}

export default plugin;
