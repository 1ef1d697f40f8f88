// The view of a run as an anywidget: for notebooks whose host lacks the extension.
import type { KernelModel } from "./kernel_socket";
import { keepView } from "./kept_view";
import { showRun } from "./run_in_cell";

interface Model extends KernelModel {
  get(name: "run_id" | "snapshot"): string;
  get(name: "height"): number;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  return keepView(model, el, (place) =>
    showRun(place, model, { run: model.get("run_id"), snapshot: model.get("snapshot"), height: model.get("height") }),
  );
}

export default { render };
