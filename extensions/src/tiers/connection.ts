// The connection of a view of tiers to what computes it: what it was sent last, and what a user wants.
import type { KernelModel } from "../kernel_socket";
import { intoSlices } from "../slices";
import type { RunTiers, StopTiers, TiersHello, TiersPicture, TiersRun, TiersStatus } from "../types";

/** What is kept of a run: two minutes. */
const MAX_STATUSES = 480;
const KERNEL_LOST = "No longer connected: the kernel was restarted or shut down. Run the cell again.";

export class TiersConnection {
  picture: TiersPicture | null = null;
  run: TiersRun | null = null;
  statuses: TiersStatus[] = [];
  /** Whether what computed it cannot be reached. */
  isDisconnected = false;

  constructor(
    private readonly model: KernelModel,
    /** What is stated where it is disconnected. */
    readonly lost = KERNEL_LOST,
  ) {
    intoSlices(this, ["picture", "run", "statuses", "isDisconnected"]);
    model.on("msg:custom", this.receive);
  }

  close(): void {
    this.model.off("msg:custom", this.receive);
  }

  /** Takes whether it is connected; each connection is sent all that there is. */
  noteConnected(isConnected: boolean): void {
    this.isDisconnected = !isConnected;
    if (isConnected) this.send({ type: "hello" });
  }

  send(request: TiersHello | RunTiers | StopTiers): void {
    try {
      this.model.send(request);
    } catch {
      this.isDisconnected = true; // JupyterLab's channel throws after a restart
    }
  }

  private readonly receive = (content: unknown): void => {
    const message = content as TiersPicture | TiersRun | TiersStatus | null;
    if (message?.type === "picture") this.picture = message;
    else if (message?.type === "run") {
      if (message.state === "starting") this.statuses = [];
      this.run = message;
    } else if (message?.type === "status") {
      // Another view of the same widget may have begun later, and is sent all of them again.
      const earlier = this.statuses.filter((one) => one.at_s < message.at_s);
      this.statuses = [...earlier.slice(1 - MAX_STATUSES), message];
    }
  };
}
