// A connection to the kernel of a notebook that looks like a WebSocket to the transport.

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

  constructor(private readonly model: KernelModel) {
    model.on("msg:custom", this.take);
    queueMicrotask(() => this.onopen?.());
  }

  send(text: string): void {
    this.model.send({ said: text });
  }

  close(): void {
    this.model.off("msg:custom", this.take);
  }

  private readonly take = (_content: unknown, buffers: DataView[]): void => {
    const [view] = buffers;
    if (view) this.onmessage?.({ data: view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) as ArrayBuffer });
  };

  /** Tell whether a kernel answers a look at nothing but the list of runs within a few seconds. */
  static answers(model: KernelModel): Promise<boolean> {
    return new Promise((resolve) => {
      const socket = new KernelSocket(model);
      const end = (answered: boolean): void => {
        clearTimeout(timer);
        // Whichever frame it was: the next one may come.
        if (answered) socket.send(JSON.stringify({ type: "taken", frame: Number.MAX_SAFE_INTEGER }));
        socket.close();
        resolve(answered);
      };
      const timer = setTimeout(() => end(false), PATIENCE_S * 1000);
      socket.onmessage = () => end(true);
      socket.send(JSON.stringify({ type: "look", number: 0, look: { runs: { limit: 1 } } }));
    });
  }
}
