// The only WebSocket: says what is shown, hands over frames, comes back by itself, polls where it must.
import { decodeFrame, type Frame } from "./frames";
import type { Host } from "./host";
import type { Subscription, SubscribeMessage, AcknowledgeMessage } from "./types";

export type Connection = "paused" | "connecting" | "live" | "polling" | "waiting" | "refused";

export interface TransportOptions {
  host: Pick<Host, "baseUrl" | "webSocketUrl" | "webSocketToken" | "openSocket" | "request">;
  /** What is shown at this moment. */
  subscription(): Subscription;
  /** Takes a frame; the next one comes when its promise is done. `asked` is the look that it answers. */
  onFrame(frame: Frame, subscription: Subscription | undefined): Promise<void>;
  onConnection(connection: Connection, message?: string): void;
  /** For tests. */
  openSocket?(url: string): WebSocket;
}

const FIRST_DELAY_S = 0.5;
const LONGEST_DELAY_S = 10;
const POLL_EVERY_S = 1.5;
const POLLS_BEFORE_A_SOCKET = 40;
const FAILURES_BEFORE_POLLING = 2;
const REMEMBERED_SUBSCRIPTIONS = 32;

export class Transport {
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private connection: Connection = "paused";
  private failures = 0;
  private hadSocketFrame = false;
  private polls = 0;
  private number = 0;
  private sent = "";
  private subscriptions = new Map<number, Subscription>();
  /** Counts connections, so that answers to an earlier one are not taken for this one's. */
  private generation = 0;

  constructor(private readonly options: TransportOptions) {}

  resume(): void {
    if (this.connection !== "paused") return;
    this.failures = 0;
    this.connect();
  }

  pause(): void {
    this.drop();
    this.report("paused");
  }

  /** Something else may be shown: asks for it, if it differs from what was asked last. */
  changed(): void {
    if (serialized(this.options.subscription()) === this.sent) return;
    if (this.connection === "live") this.sendSubscription();
    else if (this.connection === "polling") this.poll();
  }

  /** Starts anew: the server then sends everything that is shown. */
  restart(): void {
    if (this.connection === "paused") return;
    this.drop();
    this.later();
  }

  private drop(): void {
    this.generation += 1;
    clearTimeout(this.timer);
    this.sent = "";
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }

  private connect(): void {
    this.drop();
    const generation = this.generation;
    this.report("connecting");
    const open = this.options.openSocket ?? this.options.host.openSocket ?? ((url) => new WebSocket(url));
    const socket = open(this.url());
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.report("live");
      this.sendSubscription();
    };
    socket.onmessage = (message) => void this.receive(message.data as ArrayBuffer, generation);
    socket.onclose = () => {
      if (generation === this.generation) this.lost();
    };
  }

  private url(): string {
    const { webSocketUrl, webSocketToken } = this.options.host;
    const query = webSocketToken ? `?token=${encodeURIComponent(webSocketToken)}` : "";
    return `${webSocketUrl}workbench/api/live${query}`;
  }

  private lost(): void {
    this.failures += 1;
    const blocked = !this.hadSocketFrame && this.failures >= FAILURES_BEFORE_POLLING;
    this.drop();
    if (blocked) this.startPolling();
    else this.later();
  }

  private later(): void {
    this.report("waiting");
    this.after(backoff_s(this.failures, Math.random()), () => this.connect());
  }

  private after(delay_s: number, what: () => void): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(what, delay_s * 1000);
  }

  private nextMessage(): SubscribeMessage {
    const subscription = this.options.subscription();
    this.sent = serialized(subscription);
    this.number += 1;
    this.subscriptions.set(this.number, subscription);
    this.subscriptions.delete(this.number - REMEMBERED_SUBSCRIPTIONS);
    return { type: "subscribe", number: this.number, subscription };
  }

  private sendSubscription(): void {
    this.socket?.send(JSON.stringify(this.nextMessage()));
  }

  private async receive(bytes: ArrayBuffer, generation: number): Promise<void> {
    if (generation !== this.generation) return;
    try {
      const frame = decodeFrame(bytes);
      this.hadSocketFrame = true;
      this.failures = 0;
      await this.options.onFrame(frame, this.subscriptions.get(frame.update.subscription));
      if (generation !== this.generation) return;
      const acknowledgement: AcknowledgeMessage = { type: "acknowledge", frame: frame.update.frame };
      this.socket?.send(JSON.stringify(acknowledgement));
    } catch (error) {
      if (generation !== this.generation) return;
      console.error("workbench: a frame could not be read", error);
      this.failures += 1;
      this.restart();
    }
  }

  private startPolling(): void {
    this.polls = 0;
    this.report("polling");
    this.poll();
  }

  private poll(): void {
    this.generation += 1;
    void this.pollOnce(this.generation);
  }

  private async pollOnce(generation: number): Promise<void> {
    clearTimeout(this.timer);
    try {
      const response = await this.options.host.request("workbench/api/update", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(this.nextMessage()),
      });
      if (generation !== this.generation) return;
      if (response.status === 401 || response.status === 403) return this.refused();
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      const frame = decodeFrame(await response.arrayBuffer());
      if (generation !== this.generation) return;
      this.failures = 0;
      this.report("polling");
      await this.options.onFrame(frame, this.subscriptions.get(frame.update.subscription));
      if (generation === this.generation) this.afterPoll();
    } catch {
      if (generation !== this.generation) return;
      this.failures += 1;
      this.later();
    }
  }

  private afterPoll(): void {
    this.polls += 1;
    if (this.polls % POLLS_BEFORE_A_SOCKET === 0) this.connect();
    else this.after(POLL_EVERY_S, () => this.poll());
  }

  private refused(): void {
    this.report("refused", "Sign in to the server again.");
    this.after(LONGEST_DELAY_S, () => this.connect());
  }

  private report(connection: Connection, message?: string): void {
    if (connection === this.connection && !message) return;
    this.connection = connection;
    this.options.onConnection(connection, message);
  }
}

/** A look as text, by which looks are compared; how much of the log is known makes no other look. */
function serialized(subscription: Subscription): string {
  return JSON.stringify({ ...subscription, log_after: subscription.log_after == null ? null : 0 });
}

/** Seconds before the next attempt: doubling, spread so that many pages do not come back at once. */
export function backoff_s(failures: number, random: number): number {
  const longest = Math.min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** Math.max(0, failures - 1));
  return longest * (0.75 + random / 2);
}
