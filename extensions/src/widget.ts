// The view as an anywidget: for notebooks whose host lacks the extension. It asks the server that the page came
// from, with the page's own cookies; where none has the run, the kernel sends the same frames.
import { hostOf } from "./browser_host";
import type { Host } from "./host";
import { KernelSocket, type KernelModel } from "./kernel_socket";
import { mount } from "./mount";
import { findsRun } from "./probe";

interface Model extends KernelModel {
  get(name: "run_id" | "snapshot"): string;
  get(name: "height"): number;
}

async function render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
  const run = model.get("run_id");
  const found = findHost();
  const host = found && (await findsRun(found, run)) ? found : kernelHost(model);
  // What is known until the first frame comes, and for good where no kernel answers:
  // an image and a table that our own Python wrote and escaped.
  el.innerHTML = model.get("snapshot");
  let view: ReturnType<typeof mount> | null = null;
  const show = (): void => {
    el.replaceChildren();
    view ??= mount(el, { host, form: "output", height: model.get("height"), state: { run } });
  };
  if (host === found || (await KernelSocket.answers(model))) show();
  return () => (view ? view.dispose() : el.replaceChildren());
}

/** Jupyter's pages say where their server is; others, such as editors, have none. */
function findHost(): Host | null {
  const configuration = document.getElementById("jupyter-config-data")?.textContent;
  const baseUrl = configuration
    ? (JSON.parse(configuration) as { baseUrl?: string }).baseUrl
    : document.body.dataset.baseUrl;
  return baseUrl === undefined ? null : hostOf(baseUrl);
}

/** Frames come from the kernel; what needs a server is refused, and its command and Python still stand there. */
function kernelHost(model: Model): Host {
  const problem = { problem: "No server of the workbench can be reached from here.", next_step: "Use the command or the Python that the button shows." };
  return {
    baseUrl: "/",
    webSocketUrl: "/",
    // As much of a WebSocket as the transport uses.
    openSocket: () => new KernelSocket(model) as unknown as WebSocket,
    request: () => Promise.resolve(new Response(JSON.stringify(problem), { status: 501 })),
  };
}

export default { render };
