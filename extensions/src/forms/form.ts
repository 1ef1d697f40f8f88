// The form as an anywidget: it draws what the kernel says, and says what a person does.
import { h, render as draw } from "preact";
import type { KernelModel } from "../kernel_socket";
import { keepView } from "../kept_view";
import { sharePressedKeys } from "../shortcuts";
import { intoSlices } from "../slices";
import { followTheme, themeName } from "../theme";
import { App } from "./app";
import { KernelConnection } from "./kernel_connection";
import type { PartName } from "./message_types";
import "../style.css";
import "./form.css";

interface Model extends KernelModel {
  get(name: "parts"): PartName[];
  get(name: "run_id"): string;
  on(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  on(name: "change:run_id", listener: () => void): void;
  /** When the kernel comes or goes. */
  on(name: "comm_live_update", listener: () => void): void;
  off(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(name: "change:run_id" | "comm_live_update", listener: () => void): void;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  return keepView(model, el, (place) => showForm(model, place));
}

function showForm(model: Model, el: HTMLElement): () => void {
  const root = document.createElement("div");
  root.className = "workbench workbench-form";
  const endKeys = sharePressedKeys(root);
  el.append(root);
  const parts = model.get("parts");
  const form = new KernelConnection(model);
  const around = { runId: model.get("run_id"), themeName: themeName() };
  intoSlices(around);
  const retheme = (): void => {
    around.themeName = root.dataset.theme = themeName();
  };
  const followRun = (): void => {
    around.runId = model.get("run_id");
  };
  const press = (event: KeyboardEvent): void => undoByKeys(event, form);
  // The model does not say which of both it was; who is greeted does, or cannot be.
  const lookAtKernel = (): void => form.hello(parts);
  model.on("change:run_id", followRun);
  model.on("comm_live_update", lookAtKernel);
  root.addEventListener("keydown", press);
  const endTheme = followTheme(retheme);
  retheme();
  draw(h(App, { form, model, parts, around }), root);
  form.hello(parts);
  return () => {
    endTheme();
    endKeys();
    model.off("change:run_id", followRun);
    model.off("comm_live_update", lookAtKernel);
    form.close();
    draw(null, root);
    root.remove();
  };
}

/** Within a text the keys undo what was typed there, as everywhere. */
function undoByKeys(event: KeyboardEvent, form: KernelConnection): void {
  const target = event.target as HTMLElement;
  const isText = target.matches("textarea, input:not([type=checkbox], [type=range], [type=radio])");
  if (isText || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z") return;
  event.preventDefault();
  form.send({ type: event.shiftKey ? "redo" : "undo" });
}

export default { render };
