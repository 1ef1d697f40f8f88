// A form in a notebook: the widget of the kernel where it lives, else what was kept of its draft. A notebook that is
// opened again shows the draft and the run that it started, and nothing that a click would not change.
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, Widget } from "@lumino/widgets";

import type { Host } from "../host";
import { hasRun } from "../run_lookup";
import { labHost } from "./host";
import { FORM_MIME_TYPE, WIDGET_MIME_TYPE } from "./names";
import { ViewWidget } from "./view_widget";

// Widgets are shown with rank -10 in each notebook; a bundle that has both is shown by this.
const RANK = -20;
const PATIENCE_MS = 1500;
const RUN_HEIGHT_PX = 520;
const NOTE = "This form is not connected to a kernel. Run its cell to continue with this experiment.";

/** What a notebook offers of its renderers. */
interface Registry {
  addFactory(factory: IRenderMime.IRendererFactory, rank?: number): void;
  createRenderer(mimeType: string): IRenderMime.IRenderer;
}

interface KeptDraft {
  yaml: string;
  run_id: string;
}

/** Lets every notebook show forms; each has renderers of its own, because each has a kernel of its own. */
export const formsInNotebooks = {
  createNew(panel: Widget): void {
    const registry = (panel as { content?: { rendermime?: Registry } } & Widget).content?.rendermime;
    registry?.addFactory(
      {
        safe: true,
        mimeTypes: [FORM_MIME_TYPE],
        createRenderer: (options) => new FormOutput(options, registry),
      },
      RANK,
    );
  },
};

class FormOutput extends Panel implements IRenderMime.IRenderer {
  readonly #sanitizer: IRenderMime.ISanitizer;
  readonly #registry: Registry;
  #kept: Panel | null = null;
  #observer: MutationObserver | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The widget that is shown. */
  #widgetId: string | null = null;

  constructor({ sanitizer }: IRenderMime.IRendererOptions, registry: Registry) {
    super();
    this.addClass("workbench-cell");
    this.#sanitizer = sanitizer;
    this.#registry = registry;
  }

  override dispose(): void {
    if (this.isDisposed) return;
    clearTimeout(this.#timer);
    this.#observer?.disconnect();
    super.dispose();
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const shown = model.data[WIDGET_MIME_TYPE] as unknown as { model_id: string } | undefined;
    const widgetId = model.trusted && shown ? shown.model_id : null;
    // The kernel renews what a saved notebook holds; the widget that is shown knows more.
    if (widgetId !== null && widgetId === this.#widgetId && this.widgets.length) return;
    this.#widgetId = widgetId;
    for (const old of [...this.widgets]) old.dispose();
    this.#kept = null;
    clearTimeout(this.#timer);
    this.#observer?.disconnect();
    const form = model.trusted ? this.#widget() : null;
    if (!form) return this.#showKept(model);
    this.addWidget(form);
    const look = (): void => {
      const isThere = form.node.querySelector(".workbench-form") !== null;
      // Until the form is there, its place shows what Jupyter says about the widget.
      form.setHidden(!isThere);
      if (isThere) clearTimeout(this.#timer);
      this.#kept?.setHidden(isThere);
    };
    this.#observer = new MutationObserver(look);
    this.#observer.observe(form.node, { childList: true, subtree: true });
    this.#timer = setTimeout(() => void this.#showKept(model), PATIENCE_MS);
    look();
    // It ends when the kernel has the widget, which may be never.
    void Promise.resolve(form.renderModel(model)).catch(() => undefined);
  }

  #widget(): IRenderMime.IRenderer | null {
    try {
      return this.#registry.createRenderer(WIDGET_MIME_TYPE);
    } catch {
      return null; // this application shows no widgets
    }
  }

  async #showKept(model: IRenderMime.IMimeModel): Promise<void> {
    const { draft } = model.data[FORM_MIME_TYPE] as unknown as { draft: string };
    const host = labHost();
    const kept = await keptDraft(host, draft);
    const isRunThere = kept?.run_id ? await hasRun(host, kept.run_id) : false;
    if (this.isDisposed || this.#kept) return;
    const panel = new Panel();
    panel.addClass("workbench-form-kept");
    panel.addWidget(paragraph(NOTE));
    panel.addWidget(kept ? text(kept.yaml) : this.#snapshot(model));
    if (kept && isRunThere) {
      const state = { run: kept.run_id };
      panel.addWidget(new ViewWidget({ host, form: "output", height: RUN_HEIGHT_PX, state }));
    }
    this.#kept = panel;
    this.addWidget(panel);
    panel.setHidden(this.node.querySelector(".workbench-form") !== null);
  }

  #snapshot(model: IRenderMime.IMimeModel): Widget {
    const snapshot = new Widget();
    snapshot.node.innerHTML = this.#sanitizer.sanitize(String(model.data["text/html"] ?? ""));
    return snapshot;
  }
}

async function keptDraft(host: Host, key: string): Promise<KeptDraft | null> {
  try {
    const response = await host.request(`workbench/api/drafts/${encodeURIComponent(key)}`);
    return response.ok ? ((await response.json()) as KeptDraft) : null;
  } catch {
    return null;
  }
}

function paragraph(words: string): Widget {
  const widget = new Widget({ node: document.createElement("p") });
  widget.node.textContent = words;
  widget.node.setAttribute("role", "status");
  return widget;
}

function text(words: string): Widget {
  const widget = new Widget({ node: document.createElement("pre") });
  widget.node.textContent = words;
  return widget;
}
