// Where the view stands in JupyterLab: one panel at the side, and one tab for each run that is opened.
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";

import type { Host } from "../host";
import { withoutUnknownRuns } from "../run_lookup";
import { FIRST_VIEW, type ViewState } from "../state";
import { workbenchIcon } from "./icon";
import { COMMANDS } from "./names";
import type { Services } from "./services";
import type { LiveSettings, Settings } from "./settings";
import { ViewWidget } from "./view_widget";

const PANEL_ID = "workbench-panel";
const PANEL_STATE = "workbench:panel";
const PANEL_RANK = 550;

type State = Partial<ViewState>;

/** The panel at the side, with the state that it was left in. */
export class SidePanel {
  readonly #services: Services;
  readonly #view: ViewWidget;
  #side: Settings["side"] = "left";

  constructor(services: Services, host: Host, settings: LiveSettings) {
    this.#services = services;
    this.#view = new ViewWidget({ host, form: "panel", later: this.#restored(host, settings) });
    this.#view.id = PANEL_ID;
    this.#view.title.icon = workbenchIcon;
    this.#view.title.caption = "Workbench runs";
    this.#view.node.setAttribute("role", "region");
    this.#view.node.setAttribute("aria-label", "Workbench");
    this.#view.stateChanged.connect((_, state) => {
      void services.stateDB?.save(PANEL_STATE, state as ReadonlyPartialJSONObject);
    });
    services.labShell?.add(this.#view, this.#side, { rank: PANEL_RANK, type: "Workbench" });
    services.restorer?.add(this.#view, PANEL_ID);
  }

  show(): void {
    this.#services.labShell?.activateById(PANEL_ID);
  }

  /** Put it at the side that the settings name; it stays where a person moved it until they change. */
  place(side: Settings["side"]): void {
    if (side === this.#side) return;
    this.#side = side;
    this.#services.labShell?.add(this.#view, side, { rank: PANEL_RANK, type: "Workbench" });
  }

  async #restored(host: Host, settings: LiveSettings): Promise<State> {
    const saved = (await this.#services.stateDB?.fetch(PANEL_STATE)) as State | undefined;
    return { chart: { ...FIRST_VIEW.chart, ...settings.chart }, ...(await withoutUnknownRuns(host, saved ?? {})) };
  }
}

/** The tabs of the main area: the list of all runs, or one run each. */
export class Tabs {
  #numMade = 0;
  readonly #tracker = new WidgetTracker<MainAreaWidget<ViewWidget>>({ namespace: "workbench" });
  readonly #services: Services;
  readonly #host: Host;
  readonly #settings: LiveSettings;

  constructor(services: Services, host: Host, settings: LiveSettings) {
    this.#services = services;
    this.#host = host;
    this.#settings = settings;
    void services.restorer?.restore(this.#tracker, {
      command: COMMANDS.open,
      args: ({ content }) => ({
        run: keyOf(content),
        state: content.state as ReadonlyPartialJSONObject,
        isRestored: true,
      }),
      name: ({ content }) => keyOf(content) ?? "all",
    });
  }

  /** Show a run, or the list of runs, in the tab that has it or in a new one. */
  open(run: string | null, state: State = {}, isBeside = false): MainAreaWidget<ViewWidget> {
    let tab = this.#find(run);
    if (!tab) {
      tab = this.#make(run, state);
      void this.#tracker.add(tab);
    } else {
      tab.content.look(state);
    }
    const { shell } = this.#services.app;
    if (!tab.isAttached) {
      shell.add(tab, "main", { type: "Workbench", ...(isBeside ? { mode: "split-right" } : {}) });
    }
    shell.activateById(tab.id);
    return tab;
  }

  /** Open a tab as it was left; one of a run that this server's store does not have stays closed. */
  async restore(run: string | null, seen: State): Promise<MainAreaWidget<ViewWidget> | null> {
    const state = await withoutUnknownRuns(this.#host, { ...seen, run: run ?? seen.run ?? null });
    return run !== null && state.run === null ? null : this.open(run, state);
  }

  /** Show the tab that has a run, if there is one, and return whether. */
  reveal(run: string): boolean {
    const tab = this.#find(run);
    if (tab?.isAttached) this.#services.app.shell.activateById(tab.id);
    return tab?.isAttached ?? false;
  }

  #find(run: string | null): MainAreaWidget<ViewWidget> | undefined {
    return this.#tracker.find(({ content }) => keyOf(content) === run);
  }

  #make(run: string | null, state: State): MainAreaWidget<ViewWidget> {
    const content = new ViewWidget({
      host: this.#host,
      form: "wide",
      state: { chart: { ...FIRST_VIEW.chart, ...this.#settings.chart }, ...state, run: state.run ?? run },
    });
    content.node.dataset.run = run ?? "";
    const tab = new MainAreaWidget({ content });
    tab.id = `workbench-${run ?? "all"}-${this.#numMade++}`;
    tab.title.label = run ?? "Workbench";
    tab.title.icon = workbenchIcon;
    tab.title.closable = true;
    tab.toolbar.hide();
    content.stateChanged.connect((_, shown) => {
      if (keyOf(content) !== null && shown.run) tab.title.label = content.node.dataset.run = shown.run;
      void this.#tracker.save(tab);
    });
    return tab;
  }
}

/** The run that a tab has: what it was opened for, or what was chosen in it since; none for the list of all runs. */
function keyOf(content: ViewWidget): string | null {
  return content.node.dataset.run || null;
}
