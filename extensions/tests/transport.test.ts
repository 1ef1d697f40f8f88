import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { backoff_s, Transport, type Connection } from "../src/transport";
import type { Subscription, SubscribeMessage } from "../src/types";
import { madeFrame } from "./frame_builder";

class FakeSocket {
  binaryType = "";
  sent: string[] = [];
  closed = false;
  onopen = () => {};
  onmessage = (_: { data: ArrayBuffer }) => {};
  onclose = () => {};
  constructor(readonly url: string) {}
  send(text: string) {
    this.sent.push(text);
  }
  close() {
    this.closed = true;
  }
  get messages(): Record<string, unknown>[] {
    return this.sent.map((text) => JSON.parse(text) as Record<string, unknown>);
  }
}

function setUp(answers: (() => Response)[] = []) {
  const sockets: FakeSocket[] = [];
  const connections: Connection[] = [];
  const asked: (Subscription | undefined)[] = [];
  const polled: SubscribeMessage[] = [];
  const subscriptions = { now: { run: "a" } as Subscription };
  let drawn = Promise.resolve();
  const transport = new Transport({
    host: {
      baseUrl: "/user/x/",
      webSocketUrl: "ws://h/user/x/",
      request: async (_, init) => {
        polled.push(JSON.parse(String(init?.body)) as SubscribeMessage);
        const answer = answers.shift();
        if (!answer) throw new Error("no network");
        return answer();
      },
    },
    subscription: () => subscriptions.now,
    onFrame: (_, look) => {
      asked.push(look);
      return drawn;
    },
    onConnection: (connection) => connections.push(connection),
    openSocket: (url) => {
      const socket = new FakeSocket(url);
      sockets.push(socket);
      return socket as unknown as WebSocket;
    },
  });
  const drawLater = () => {
    let done = () => {};
    drawn = new Promise((resolve) => (done = resolve));
    return () => done();
  };
  return { transport, sockets, connections, asked, polled, subscriptions, drawLater };
}

const settle = async () => {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
};

test("a look is sent when the connection is there, and again only where it differs", () => {
  const { transport, sockets, subscriptions } = setUp();
  transport.resume();
  assert.equal(sockets[0].url, "ws://h/user/x/workbench/api/live");
  sockets[0].onopen();
  transport.changed();
  subscriptions.now = { run: "b" };
  transport.changed();
  assert.deepEqual(sockets[0].messages, [
    { type: "subscribe", number: 1, subscription: { run: "a" } },
    { type: "subscribe", number: 2, subscription: { run: "b" } },
  ]);
  transport.pause();
});

test("where the log is does not make another look", () => {
  const { transport, sockets, subscriptions } = setUp();
  subscriptions.now = { run: "a", log_after: 0 };
  transport.resume();
  sockets[0].onopen();
  subscriptions.now = { run: "a", log_after: 9 };
  transport.changed();
  assert.equal(sockets[0].sent.length, 1);
  transport.pause();
});

test("a frame is acknowledged when it is drawn, not before", async () => {
  const { transport, sockets, asked, drawLater } = setUp();
  transport.resume();
  sockets[0].onopen();
  const draw = drawLater();
  sockets[0].onmessage({ data: madeFrame({ subscription: 1, frame: 4 }) });
  await settle();
  assert.equal(sockets[0].sent.length, 1);
  draw();
  await settle();
  assert.deepEqual(sockets[0].messages[1], { type: "acknowledge", frame: 4 });
  assert.deepEqual(asked, [{ run: "a" }]);
  transport.pause();
});

test("a lost connection comes back and is asked anew", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { transport, sockets, connections } = setUp();
  transport.resume();
  sockets[0].onopen();
  sockets[0].onmessage({ data: madeFrame({ subscription: 1 }) });
  await settle();
  sockets[0].onclose();
  assert.equal(connections.at(-1), "waiting");
  mock.timers.tick(1000);
  sockets[1].onopen();
  assert.deepEqual(sockets[1].messages[0], { type: "subscribe", number: 2, subscription: { run: "a" } });
  transport.pause();
  mock.timers.reset();
});

test("a frame that cannot be read starts the connection anew", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const silent = mock.method(console, "error", () => {});
  const { transport, sockets } = setUp();
  transport.resume();
  sockets[0].onopen();
  sockets[0].onmessage({ data: new ArrayBuffer(2) });
  await settle();
  assert.ok(sockets[0].closed);
  mock.timers.tick(10_000);
  assert.equal(sockets.length, 2);
  transport.pause();
  silent.mock.restore();
  mock.timers.reset();
});

test("where sockets are blocked the server is asked every while", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const answer = () => new Response(madeFrame({ subscription: 1 }));
  const { transport, sockets, connections, polled, asked } = setUp([answer, answer]);
  transport.resume();
  sockets[0].onclose();
  mock.timers.tick(1000);
  sockets[1].onclose();
  await settle();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(connections.at(-1), "polling");
  transport.changed();
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(polled.length, 1, "nothing else is shown: nothing is asked before its time");
  assert.equal(asked.length, 1);
  mock.timers.tick(2000);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(polled.length, 2);
  transport.pause();
  mock.timers.reset();
});

test("a pause closes the connection and nothing goes on", () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const { transport, sockets, connections } = setUp();
  transport.resume();
  sockets[0].onopen();
  transport.pause();
  sockets[0].onclose();
  mock.timers.tick(60_000);
  assert.ok(sockets[0].closed);
  assert.equal(sockets.length, 1);
  assert.equal(connections.at(-1), "paused");
  mock.timers.reset();
});

test("attempts come less and less often, up to ten seconds", () => {
  assert.deepEqual(
    [1, 2, 3, 10].map((failures) => backoff_s(failures, 0.5)),
    [0.5, 1, 2, 10],
  );
  assert.ok(backoff_s(10, 0) < backoff_s(10, 1));
});
