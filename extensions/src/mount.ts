// The seam between the view and the places that show it.
import { h, render } from "preact";
import { levelOf, notificationsAmong } from "./alerts";
import { Controller, type Change } from "./controller";
import { formatPercent } from "./format";
import type { Frame } from "./frames";
import type { Host } from "./host";
import { type Form } from "./subscription";
import { sharePressedKeys } from "./shortcuts";
import { State, type ViewState } from "./state";
import { followTheme, readTheme, themeName } from "./theme";
import { Transport } from "./transport";
import type { RunDetail, Subscription, Update } from "./types";
import { App } from "./views/app";
import "./style.css";

export type { Host } from "./host";
export type { ViewState } from "./state";

export interface MountOptions {
  host: Host;
  state?: Partial<ViewState>;
  onState?(state: ViewState): void;
  /** Where the host shows the progress in a title; it goes on while nobody sees the view. */
  onTitle?(title: string): void;
  /** panel: a narrow side bar; wide: main area or page; output: one run in a notebook. */
  form: Form;
  /** In CSS pixels, of an output; elsewhere the element's own. */
  height?: number;
}

export interface Mounted {
  update(state: Partial<ViewState>): void;
  /** Closes the connection while nobody sees the view. */
  pause(): void;
  resume(): void;
  dispose(): void;
}

const MAX_DRAWING_WAIT_MS = 500;
/** How often the ages in the list of runs are counted on. */
const AGE_INTERVAL_MS = 10_000;
/** What each drawing is called in the browser's own timeline. */
const DRAWN = "workbench-drawn";

export function mount(element: HTMLElement, options: MountOptions): Mounted {
  const view = new MountedView(element, options);
  return {
    update: (state) => view.controller.show(state),
    pause: () => view.pause(),
    resume: () => view.resume(),
    dispose: () => view.dispose(),
  };
}

class MountedView {
  readonly controller: Controller;
  private readonly state: State;
  private readonly transport: Transport;
  private readonly root: HTMLElement;
  private readonly endings: (() => void)[] = [];
  private paused = false;
  private subscriptionTimer: ReturnType<typeof setTimeout> | undefined;
  /** Alerts that were there before are history, not news. */
  private alertsFrom: { run: string; seq: number; isLost: boolean } | null = null;

  constructor(
    element: HTMLElement,
    private readonly options: MountOptions,
  ) {
    this.state = new State(options.state);
    this.root = document.createElement("div");
    this.root.className = `workbench workbench-${options.form}`;
    if (options.height) this.root.style.blockSize = `${options.height}px`;
    if (options.form === "output") this.endings.push(sharePressedKeys(this.root));
    element.append(this.root);
    this.root.dataset.theme = themeName();
    const theme = readTheme(this.root);
    this.controller = new Controller(this.state, options.host, options.form, theme, (what) => this.changed(what));
    this.transport = new Transport({
      host: options.host,
      subscription: () => this.controller.subscription(),
      onFrame: (frame, subscription) => this.receive(frame, subscription),
      onConnection: (connection, message) => {
        this.state.connection = connection;
        this.state.connectionMessage = message ?? "";
      },
    });
    this.endings.push(followTheme(() => this.retheme()));
    const ages = setInterval(() => this.countAges(), AGE_INTERVAL_MS);
    this.endings.push(() => clearInterval(ages));
    const visibility = () => this.visibilityChanged();
    document.addEventListener("visibilitychange", visibility);
    this.endings.push(() => document.removeEventListener("visibilitychange", visibility));
    render(h(App, { controller: this.controller }), this.root);
    this.visibilityChanged();
  }

  pause(): void {
    this.paused = true;
    this.transport.pause();
  }

  resume(): void {
    this.paused = false;
    this.visibilityChanged();
  }

  dispose(): void {
    this.transport.pause();
    clearTimeout(this.subscriptionTimer);
    for (const end of this.endings) end();
    render(null, this.root);
    this.root.remove();
  }

  private visibilityChanged(): void {
    if (this.paused) return;
    this.controller.hidden = document.hidden;
    if (document.hidden && !this.options.onTitle) return this.transport.pause();
    this.transport.resume();
    this.transport.changed();
  }

  private changed(what: Change): void {
    clearTimeout(this.subscriptionTimer);
    // What belonged to another run was forgotten: the server must hear of it, even if it comes back at once.
    if (what === "run") this.transport.changed();
    else this.subscriptionTimer = setTimeout(() => this.transport.changed(), 30);
    this.options.onState?.(this.state.view);
  }

  private async receive(frame: Frame, subscription: Subscription | undefined): Promise<void> {
    if (subscription) this.state.apply(frame, subscription);
    this.chooseFirstRun();
    if (subscription?.run === this.state.view.run) this.notifyAlerts(frame.update.seq ?? 0);
    if (frame.update.run && this.state.run) this.options.onTitle?.(titleOf(this.state.run));
    if (!document.hidden) await drawn();
    this.note(frame.update);
    // What was received may require more: the best trial beside the throughput.
    this.transport.changed();
  }

  /** Marks in the browser's timeline what is on the screen, so that profiles show why and how fast. */
  private note(update: Update): void {
    const { run, chart } = this.state;
    const curves = update.chart ? chart?.curves.size : undefined;
    performance.clearMarks(DRAWN);
    performance.mark(DRAWN, { detail: { run: run?.run_id, loading: run?.loading, seq: update.seq, curves } });
  }

  /** Without a choice the newest run is shown. */
  private chooseFirstRun(): void {
    const newest = this.state.runs?.items[0];
    if (this.state.view.run === null && newest && this.options.form !== "output") {
      this.controller.show({ run: newest.run_id });
    }
  }

  private notifyAlerts(seq: number): void {
    const { view, log, logSeq, run } = this.state;
    if (!view.run || !seq) return;
    const isLost = run?.state === "lost";
    if (this.alertsFrom?.run !== view.run) {
      // What happened comes a little later than the run: lines up to here are history all the same.
      this.alertsFrom = { run: view.run, seq, isLost };
      return;
    }
    const from = this.alertsFrom.seq;
    const fresh = notificationsAmong(log.filter((line) => line.seq > from));
    for (const line of fresh.slice(-3)) this.options.host.notify?.(line.text, levelOf(line));
    // A run whose driver is gone cannot tell itself.
    if (run && isLost && !this.alertsFrom.isLost) {
      this.options.host.notify?.(`run ${run.name} is lost: ${run.message ?? "its driver no longer runs"}`, "error");
    }
    this.alertsFrom = { run: view.run, seq: Math.max(from, logSeq), isLost };
  }

  private retheme(): void {
    this.root.dataset.theme = themeName();
    this.controller.theme = readTheme(this.root);
  }

  private countAges(): void {
    if (!document.hidden) this.state.nowUnixS = Date.now() / 1000;
  }
}

/** How far a run is, in the few words that fit the title of a tab. */
function titleOf({ state, progress, name }: RunDetail): string {
  const isActive = state === "running" || state === "stopping";
  return `${isActive && progress != null ? formatPercent(progress) : state} ${name}`;
}

/** Waits until the browser has drawn; not forever, because a hidden page draws nothing. */
function drawn(): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, MAX_DRAWING_WAIT_MS);
    requestAnimationFrame(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}
