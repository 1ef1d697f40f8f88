// The person's settings for the workbench, as JupyterLab keeps them.
import type { ISettingRegistry } from "@jupyterlab/settingregistry";

import type { ViewState } from "../state";
import { PLUGIN_ID } from "./names";

export interface Settings {
  side: "left" | "right";
  axis: "auto" | "step" | "epoch" | "time";
  shown: "best" | "chosen" | "all";
  notifications: boolean;
}

const DEFAULTS: Settings = { side: "left", axis: "auto", shown: "best", notifications: true };

/** Settings that are there at once with defaults, and follow the registry from when it has answered. */
export class LiveSettings {
  current: Settings = DEFAULTS;

  /** Read the settings and call `changed` now and whenever they change. */
  async follow(registry: ISettingRegistry, changed: (settings: Settings) => void): Promise<void> {
    const loaded = await registry.load(PLUGIN_ID);
    const take = (): void => {
      this.current = { ...DEFAULTS, ...(loaded.composite as Partial<Settings>) };
      changed(this.current);
    };
    loaded.changed.connect(take);
    take();
  }

  /** The chart of a view that is opened anew. */
  get chart(): Pick<ViewState["chart"], "axis" | "shown"> {
    const { axis, shown } = this.current;
    return { axis: axis === "auto" ? "" : axis, shown };
  }
}
