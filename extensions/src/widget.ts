// The view of a run as an anywidget: for notebooks whose host lacks the extension.
import type { KernelModel } from "./kernel_socket";
import { showRun } from "./run_in_cell";

interface Model extends KernelModel {
  get(name: "run_id" | "snapshot"): string;
  get(name: "height"): number;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  return showRun(el, model, { run: model.get("run_id"), snapshot: model.get("snapshot"), height: model.get("height") });
}

export default { render };
