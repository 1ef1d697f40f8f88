// The view of a run within a widget: it asks the server that the page came from, with the page's own cookies;
// where none has the run, the kernel sends the same frames.
import { hostOf } from "./browser_host";
import type { Host } from "./host";
import { KernelSocket, type KernelModel } from "./kernel_socket";
import { mount } from "./mount";
import { hasRun } from "./run_lookup";

interface RunInCell {
  run: string;
  /** HTML that our own Python wrote and escaped: an image and a table. */
  snapshot: string;
  /** In CSS pixels. */
  height: number;
}

/** Shows a run; returns what ends that. */
export function showRun(element: HTMLElement, model: KernelModel, { run, snapshot, height }: RunInCell): () => void {
  let view: ReturnType<typeof mount> | null = null;
  let isGone = false;
  // What is known until the first frame comes, and for good where no kernel answers.
  element.innerHTML = snapshot;
  const show = async (): Promise<void> => {
    const found = findHost();
    const isServed = found !== null && (await hasRun(found, run));
    if (!isServed && !(await KernelSocket.answers(model))) return;
    if (isGone) return;
    element.replaceChildren();
    view = mount(element, { host: isServed ? found : kernelHost(model), form: "output", height, state: { run } });
  };
  void show();
  return () => {
    isGone = true;
    if (view) view.dispose();
    else element.replaceChildren();
  };
}

/** Jupyter's pages say where their server is; others, such as editors, have none. */
export function findHost(): Host | null {
  const configuration = document.getElementById("jupyter-config-data")?.textContent;
  const baseUrl = configuration
    ? (JSON.parse(configuration) as { baseUrl?: string }).baseUrl
    : document.body.dataset.baseUrl;
  return baseUrl === undefined ? null : hostOf(baseUrl);
}

/** Frames come from the kernel; what needs a server is refused, and its command and Python still stand there. */
function kernelHost(model: KernelModel): Host {
  const problem = {
    problem: "No workbench server can be reached from here.",
    next_step: "Use the command or the Python code shown here.",
  };
  return {
    baseUrl: "/",
    webSocketUrl: "/",
    // As much of a WebSocket as the transport uses.
    openSocket: () => new KernelSocket(model) as unknown as WebSocket,
    request: () => Promise.resolve(new Response(JSON.stringify(problem), { status: 501 })),
  };
}
