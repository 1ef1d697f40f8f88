// The connection of a view of tiers to the kernel: what it was sent last, and what a user wants.
import type { KernelModel } from "../kernel_socket";
import type { RunTiers, StopTiers, TiersHello, TiersPicture, TiersRun, TiersStatus } from "./types";

/** What is kept of a run: two minutes. */
const MAX_STATUSES = 480;

export class TiersConnection {
  picture: TiersPicture | null = null;
  run: TiersRun | null = null;
  statuses: TiersStatus[] = [];
  /** Whether the kernel that computed it no longer exists. */
  isDisconnected = false;

  constructor(
    private readonly model: KernelModel,
    private readonly onChange: () => void,
  ) {
    model.on("msg:custom", this.receive);
  }

  close(): void {
    this.model.off("msg:custom", this.receive);
  }

  send(request: TiersHello | RunTiers | StopTiers): void {
    try {
      this.model.send(request);
    } catch {
      this.isDisconnected = true; // JupyterLab's channel throws after a restart
      this.onChange();
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
    } else return;
    this.onChange();
  };
}
