// The output of a run in a notebook: the live view where this server has the run, else the stored snapshot.
// It needs no kernel. The snapshot is what the notebook holds for readers without any of this.
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, Widget } from "@lumino/widgets";

import { hasRun } from "../run_lookup";
import { labHost } from "./host";
import { MIME_PLUGIN_ID, RUN_MIME_TYPE } from "./names";
import { ViewWidget } from "./view_widget";

// Widgets are shown with rank -10 in each notebook; a bundle that has both is shown by this.
const RANK = -20;

interface Shown {
  run_id: string;
  height?: number;
}

class RunOutput extends Panel implements IRenderMime.IRenderer {
  readonly #sanitizer: IRenderMime.ISanitizer;
  #turn = 0;
  /** The run that is drawn live, "" for a snapshot. */
  #live = "";

  constructor({ sanitizer }: IRenderMime.IRendererOptions) {
    super();
    this.addClass("workbench-cell");
    this.#sanitizer = sanitizer;
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const turn = ++this.#turn;
    const shown = model.data[RUN_MIME_TYPE] as unknown as Shown;
    const host = labHost();
    const isThere = await hasRun(host, shown.run_id);
    // Lab may render the same output twice at once; only the last turn draws.
    if (turn !== this.#turn || this.isDisposed) return;
    // While a cell waits, its output is renewed for other hosts: what is drawn live stays.
    if (isThere && this.#live === shown.run_id) return;
    this.#live = isThere ? shown.run_id : "";
    this.#replace(
      isThere
        ? new ViewWidget({ host, form: "output", height: shown.height, state: { run: shown.run_id } })
        : this.#snapshot(model),
    );
  }

  #replace(content: Widget): void {
    for (const old of [...this.widgets]) old.dispose();
    this.addWidget(content);
  }

  #snapshot(model: IRenderMime.IMimeModel): Widget {
    const snapshot = new Widget();
    snapshot.addClass("jp-RenderedHTMLCommon");
    const html = model.data["text/html"];
    if (html === undefined) snapshot.node.textContent = String(model.data["text/plain"] ?? "");
    else snapshot.node.innerHTML = this.#sanitizer.sanitize(String(html));
    return snapshot;
  }
}

const output: IRenderMime.IExtension = {
  id: MIME_PLUGIN_ID,
  description: "Shows a run of the workbench in a notebook's output.",
  dataType: "json",
  rank: RANK,
  rendererFactory: {
    safe: true,
    mimeTypes: [RUN_MIME_TYPE],
    createRenderer: (options) => new RunOutput(options),
  },
};

export default output;
