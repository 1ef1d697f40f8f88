// A connection to the kernel of a notebook that looks like a WebSocket to the transport. All views of a widget
// share its channel to the kernel: each connection has a name, by which it is answered alone.

export interface KernelModel {
  send(content: unknown): void;
  on(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
  off(name: "msg:custom", listener: (content: unknown, buffers: DataView[]) => void): void;
}

const PATIENCE_S = 5;

export class KernelSocket {
  binaryType: BinaryType = "arraybuffer";
  onopen: (() => unknown) | null = null;
  onmessage: ((event: { data: ArrayBuffer }) => unknown) | null = null;
  onclose: (() => unknown) | null = null;
  private readonly view = Array.from(crypto.getRandomValues(new Uint32Array(4))).join("-");

  constructor(private readonly model: KernelModel) {
    model.on("msg:custom", this.take);
    queueMicrotask(() => this.onopen?.());
  }

  send(text: string): void {
    this.model.send({ view: this.view, message: text });
  }

  /** Without words: the kernel then sends to this view no more. */
  close(): void {
    this.model.off("msg:custom", this.take);
    try {
      this.model.send({ view: this.view });
    } catch {
      // The kernel is gone, and with it what it would have sent.
    }
  }

  private readonly take = (content: unknown, buffers: DataView[]): void => {
    const [bytes] = buffers;
    if ((content as { view?: string }).view !== this.view || !bytes) return;
    this.onmessage?.({
      data: bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer,
    });
  };

  /** Tell whether a kernel answers a look at nothing but the list of runs within a few seconds. */
  static answers(model: KernelModel): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = new KernelSocket(model);
      const end = (answered: boolean): void => {
        clearTimeout(timer);
        socket.close();
        resolve(answered);
      };
      const timer = setTimeout(() => end(false), PATIENCE_S * 1000);
      socket.onmessage = () => end(true);
      socket.send(JSON.stringify({ type: "subscribe", number: 0, subscription: { runs: { limit: 1 } } }));
    });
  }
}
