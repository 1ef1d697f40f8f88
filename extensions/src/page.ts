// The stand-alone page: the run stands in the address, the progress in the title of the tab.
import { hostOf } from "./browser_host";
import type { Host } from "./host";
import { mount, type Mounted, type ViewState } from "./mount";
import "./page.css";

const STORED = "workbench-view";

function runInAddress(): string | null {
  return new URLSearchParams(location.hash.slice(1)).get("run");
}

/** The token has signed this browser in; an address that is shared must not sign in others. */
function withoutToken(): void {
  const address = new URL(location.href);
  if (!address.searchParams.has("token")) return;
  address.searchParams.delete("token");
  history.replaceState(history.state, "", address);
}

function storedState(): Partial<ViewState> {
  try {
    return JSON.parse(sessionStorage.getItem(STORED) ?? "{}") as Partial<ViewState>;
  } catch {
    return {};
  }
}

function remember(state: ViewState): void {
  sessionStorage.setItem(STORED, JSON.stringify(state));
  const before = runInAddress();
  if (!state.run || state.run === before) return;
  const address = `#${new URLSearchParams({ run: state.run })}`;
  // The run that is shown where none was chosen is nothing to go back from.
  if (before === null) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}

/** Where the server has JupyterLab, a notebook is opened there. */
function openerOf(lab: string | undefined): Pick<Host, "openFile"> {
  if (!lab) return {};
  return {
    openFile: (path) => void window.open(`${lab}tree/${path.split("/").map(encodeURIComponent).join("/")}`, "_blank"),
  };
}

function show(element: HTMLElement): void {
  withoutToken();
  const stored = storedState();
  const run = runInAddress() ?? stored.run ?? null;
  const state: Partial<ViewState> = run === stored.run ? stored : { run };
  const title = document.title;
  const view: Mounted = mount(element, {
    host: { ...hostOf(element.dataset.baseUrl ?? "/"), ...openerOf(element.dataset.labUrl) },
    form: "wide",
    state,
    onState: remember,
    onTitle: (progress) => (document.title = `${progress} · ${title}`),
  });
  const follow = () => view.update({ run: runInAddress() });
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
}

const element = document.getElementById("workbench");
if (element) show(element);
