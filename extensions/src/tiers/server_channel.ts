// A connection to the server that looks like a widget's channel to its kernel; it comes back by itself.
import type { Host } from "../host";
import type { KernelModel } from "../kernel_socket";
import { backoff_s } from "../transport";

type Listener = (content: unknown, buffers: DataView[]) => void;

export interface ServerChannelOptions {
  host: Pick<Host, "webSocketUrl" | "webSocketToken">;
  /** Of the file of tiers, relative to the server's folder. */
  path: string;
  onConnected(isConnected: boolean): void;
  /** For tests. */
  openSocket?(url: string): WebSocket;
}

export class ServerChannel implements KernelModel {
  private readonly listeners = new Set<Listener>();
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;

  constructor(private readonly options: ServerChannelOptions) {}

  connect(): void {
    const { openSocket = (url: string) => new WebSocket(url) } = this.options;
    const socket = openSocket(this.url());
    this.socket = socket;
    socket.onopen = () => {
      this.failures = 0;
      this.options.onConnected(true);
    };
    socket.onmessage = ({ data }) => this.listeners.forEach((listener) => listener(JSON.parse(String(data)), []));
    socket.onclose = () => {
      if (socket === this.socket) this.lose();
    };
  }

  send(content: unknown): void {
    this.socket?.send(JSON.stringify(content));
  }

  on(_name: "msg:custom", listener: Listener): void {
    this.listeners.add(listener);
  }

  off(_name: "msg:custom", listener: Listener): void {
    this.listeners.delete(listener);
  }

  close(): void {
    clearTimeout(this.timer);
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  private lose(): void {
    this.failures += 1;
    this.options.onConnected(false);
    this.timer = setTimeout(() => this.connect(), backoff_s(this.failures, Math.random()) * 1000);
  }

  private url(): string {
    const { webSocketUrl, webSocketToken } = this.options.host;
    const query = new URLSearchParams({ path: this.options.path });
    if (webSocketToken) query.set("token", webSocketToken);
    return `${webSocketUrl}workbench/api/tiers?${query}`;
  }
}
