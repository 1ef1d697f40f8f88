import assert from "node:assert/strict";
import { test } from "node:test";
import { KernelSocket, type KernelModel } from "../src/kernel_socket";

type Listener = (content: unknown, buffers: DataView[]) => void;

/** A channel to a kernel, which every view of a widget hears. */
class Channel implements KernelModel {
  readonly listeners = new Set<Listener>();
  readonly sent: { view: string; message?: string }[] = [];

  send(content: unknown): void {
    this.sent.push(content as { view: string; message?: string });
  }

  on(_: "msg:custom", listener: Listener): void {
    this.listeners.add(listener);
  }

  off(_: "msg:custom", listener: Listener): void {
    this.listeners.delete(listener);
  }

  answer(view: string, byte: number): void {
    for (const listener of this.listeners) listener({ view }, [new DataView(Uint8Array.of(byte).buffer)]);
  }
}

test("each of two views of a widget hears only what it is answered, and ends alone", () => {
  const channel = new Channel();
  const heard: number[][] = [[], []];
  const sockets = heard.map((bytes) => {
    const socket = new KernelSocket(channel);
    socket.onmessage = ({ data }) => bytes.push(new Uint8Array(data)[0]);
    socket.send("a look");
    return socket;
  });
  const [first, second] = channel.sent.map(({ view }) => view);
  assert.notEqual(first, second);
  channel.answer(first, 1);
  channel.answer(second, 2);
  assert.deepEqual(heard, [[1], [2]]);
  sockets[0].close();
  assert.deepEqual(channel.sent.at(-1), { view: first });
  channel.answer(second, 3);
  assert.deepEqual(heard, [[1], [2, 3]]);
});
