// The view as a widget of JupyterLab: drawn when it is first seen, paused whenever it is not.
// Its state lives here and not in the view, because Lab hides and shows everything when the theme changes.
import type { Message } from "@lumino/messaging";
import { Signal, type ISignal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";

import { mount, type MountOptions } from "../mount";
import type { ViewState } from "../state";

type Mounted = ReturnType<typeof mount>;

export interface ViewWidgetOptions extends Pick<MountOptions, "host" | "form" | "height"> {
  state?: Partial<ViewState>;
  /** State that has to be fetched first. */
  later?: Promise<Partial<ViewState>>;
}

export class ViewWidget extends Widget {
  /** What it shows, as far as it is to survive a reload. */
  state: Partial<ViewState>;

  readonly #options: ViewWidgetOptions;
  readonly #stateChanged = new Signal<this, Partial<ViewState>>(this);
  #later: Promise<Partial<ViewState>> | null;
  #view: Mounted | null = null;

  constructor(options: ViewWidgetOptions) {
    super();
    this.addClass("workbench-host");
    this.state = options.state ?? {};
    this.#options = options;
    this.#later = options.later ?? null;
  }

  /** Emitted when a person looks at something else. */
  get stateChanged(): ISignal<this, Partial<ViewState>> {
    return this.#stateChanged;
  }

  /** Show something else. */
  look(state: Partial<ViewState>): void {
    this.state = { ...this.state, ...state };
    this.#view?.update(state);
  }

  override dispose(): void {
    if (this.isDisposed) return;
    this.#view?.dispose();
    this.#view = null;
    Signal.clearData(this);
    super.dispose();
  }

  protected override onAfterAttach(_: Message): void {
    if (this.isVisible) void this.#wake();
  }

  protected override onAfterShow(_: Message): void {
    void this.#wake();
  }

  protected override onBeforeHide(_: Message): void {
    this.#view?.pause();
  }

  protected override onBeforeDetach(_: Message): void {
    this.#view?.pause();
  }

  protected override onActivateRequest(_: Message): void {
    this.node.tabIndex = -1;
    this.node.focus({ preventScroll: true });
  }

  async #wake(): Promise<void> {
    if (this.#later) {
      const later = this.#later;
      this.#later = null;
      this.state = { ...this.state, ...(await later.catch(() => ({}))) };
    }
    if (this.isDisposed || !this.isVisible) return;
    if (this.#view) {
      this.#view.resume();
      return;
    }
    this.#view = mount(this.node, {
      host: this.#options.host,
      form: this.#options.form,
      height: this.#options.height,
      state: this.state,
      onState: (state) => {
        this.state = state;
        this.#stateChanged.emit(state);
      },
    });
  }
}
