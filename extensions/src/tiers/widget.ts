// A view of tiers as an anywidget.
import { h, render as draw } from "preact";
import type { KernelModel } from "../kernel_socket";
import { keepView } from "../kept_view";
import { sharePressedKeys } from "../shortcuts";
import { followTheme, themeName } from "../theme";
import { App } from "./app";
import { TiersConnection } from "./connection";
import "../style.css";
import "../forms/form.css";
import "./tiers.css";

interface Model extends KernelModel {
  on(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  /** When the kernel comes or goes. */
  on(name: "comm_live_update", listener: () => void): void;
  off(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(name: "comm_live_update", listener: () => void): void;
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  return keepView(model, el, (place) => showTiers(model, place));
}

function showTiers(model: Model, el: HTMLElement): () => void {
  const root = document.createElement("div");
  root.className = "workbench workbench-form workbench-tiers";
  const endKeys = sharePressedKeys(root);
  el.append(root);
  const connection = new TiersConnection(model);
  const hello = (): void => connection.send({ type: "hello" });
  const endTheme = followTheme(() => (root.dataset.theme = themeName()));
  root.dataset.theme = themeName();
  model.on("comm_live_update", hello);
  draw(h(App, { connection }), root);
  hello();
  return () => {
    endTheme();
    endKeys();
    model.off("comm_live_update", hello);
    connection.close();
    draw(null, root);
    root.remove();
  };
}

export default { render };
