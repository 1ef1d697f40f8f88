import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { act, cleanup, fireEvent, render, screen, within } from "@testing-library/preact";
import { App } from "../src/tiers/app";
import { TiersConnection } from "../src/tiers/connection";
import { partsOf } from "../src/tiers/curve";
import type { SchedulerPoint, TiersPicture, TiersRun, TiersStatus, ExperimentFile } from "../src/types";
import { Tiers } from "../src/views/tiers";
import { buildController } from "./view_builder";
import { FakeKernel } from "./fake_kernel";

afterEach(cleanup);

class FakeSocket {
  static made: FakeSocket[] = [];
  onopen?: () => void;
  onmessage?: (event: { data: string }) => void;
  onclose?: () => void;
  readonly sent: unknown[] = [];

  constructor(readonly url: string) {
    FakeSocket.made.push(this);
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }

  close(): void {
    this.onclose?.();
  }
}

const THRESHOLDS = [0, 0.5, 0.9, 1];

function point(scheduler: string, at: number): SchedulerPoint {
  const isEnd = scheduler === "end";
  return {
    scheduler,
    accuracy: 0.9 + at / 100,
    mean_s: isEnd ? 0.001 : 0.001 * (at + 1),
    p50_s: 0.001,
    p95_s: at === 3 && !isEnd ? null : 0.01 * (at + 1),
    bytes_per_sample: isEnd ? 0 : 100 * at,
    load: [0.1, isEnd ? 0 : 0.4 * at],
  };
}

const PICTURE: TiersPicture = {
  type: "picture",
  file: "tiers.yaml",
  tiers: ["end", "cloud"],
  counts: [1000, 2],
  scheduler: "end-cloud",
  runnable: ["end", "end-cloud"],
  threshold: 0.9,
  exported: 0.9,
  busy: 0.7,
  points: THRESHOLDS.map((threshold, at) => ({
    threshold,
    share: 1 - at / 4,
    schedulers: ["end", "end-cloud", "nearest"].map((name) => point(name, at)),
  })),
};

const IDLE: TiersRun = { type: "run", state: "idle" };

function status(at_s: number, num_waiting: number): TiersStatus {
  return {
    type: "status",
    at_s,
    tiers: [
      { num_waiting, load: 0.25, answers_per_s: 12 },
      { num_waiting: 0, load: 0.5, answers_per_s: 3.25 },
    ],
  };
}

function show(...messages: unknown[]) {
  const kernel = new FakeKernel();
  const connection = new TiersConnection(kernel);
  render(<App connection={connection} />);
  messages.forEach((message) => kernel.emit(message));
  return { kernel, connection };
}

const slider = () => screen.getByLabelText<HTMLInputElement>("Exit threshold");
const fact = (label: string) => screen.getAllByText(label)[0].parentElement!.querySelector("dd")!.textContent;
const labelOf = (title: RegExp) => screen.getByRole("img", { name: title }).getAttribute("aria-label")!;

test("the slider begins at the threshold that holds, and shows what another gives", () => {
  show(PICTURE, IDLE);
  assert.equal(slider().value, "2");
  assert.equal(fact("Accuracy"), "0.9200");
  assert.equal(fact("Load cloud"), "80%");
  assert.match(document.body.textContent!, /This threshold is in use; it is the exported one/);
  fireEvent.input(slider(), { target: { value: "1" } });
  assert.equal(fact("Accuracy"), "0.9100");
  assert.equal(fact("p95"), "20 ms");
  assert.equal(fact("Bytes"), "100 B");
  assert.match(document.body.textContent!, /75% of the samples leave.*write threshold: 0.5 into place/);
  assert.match(labelOf(/^p95 by exit threshold/), /at 0.5: 20 ms/);
  fireEvent.click(screen.getByRole("button", { name: "Back to 0.9" }));
  assert.equal(slider().value, "2");
});

test("a queue that grows without end is stated, and is a gap in its curve", () => {
  show(PICTURE, IDLE);
  fireEvent.input(slider(), { target: { value: "3" } });
  assert.equal(fact("p95"), "without end");
  assert.match(labelOf(/^p95/), /at 1: without end/);
  assert.deepEqual(partsOf([1, null, 2, 3]), [
    [[0, 1]],
    [
      [2, 2],
      [3, 3],
    ],
  ]);
});

test("the balance point is drawn and named: from where the last tier is busier than it should be", () => {
  show(PICTURE, IDLE);
  const limits = () => document.querySelectorAll(".workbench-tiers-limit").length;
  assert.match(
    document.body.textContent!,
    /Balance: thresholds above 0.5 take the load of cloud beyond place.busy, 70%/,
  );
  assert.equal(limits(), 1);
  fireEvent.change(screen.getByLabelText("Scheduler"), { target: { value: "end" } });
  assert.match(document.body.textContent!, /No threshold takes the load of cloud beyond place.busy, 70%/);
  assert.equal(limits(), 0);
});

test("another scheduler has other curves", () => {
  show(PICTURE, IDLE);
  fireEvent.change(screen.getByLabelText("Scheduler"), { target: { value: "end" } });
  assert.equal(fact("Bytes"), "0 B");
  const bytes = screen.getByRole("img", { name: /^Bytes/ }).parentElement!;
  assert.equal(bytes.querySelector(".workbench-tiers-ends")!.textContent, "00 B1", "one value is no range");
  assert.match(labelOf(/^Load by exit threshold/), /end 10%, cloud 0%/);
});

test("tiers are run with the chosen scheduler and threshold, and can be stopped", () => {
  const { kernel } = show(PICTURE, IDLE);
  fireEvent.input(slider(), { target: { value: "1" } });
  fireEvent.change(screen.getByLabelText("Requests per second"), { target: { value: "50" } });
  fireEvent.change(screen.getByLabelText("Seconds"), { target: { value: "-3" } });
  fireEvent.click(screen.getByRole("button", { name: /Run end-cloud/ }));
  assert.deepEqual(kernel.last, { type: "run", scheduler: "end-cloud", threshold: 0.5, rate_per_s: 50, time_s: 20 });
  kernel.emit({ type: "run", state: "running", scheduler: "end-cloud", threshold: 0.5, time_s: 20 });
  fireEvent.click(screen.getByRole("button", { name: /Stop/ }));
  assert.deepEqual(kernel.last, { type: "stop" });
});

test("what cannot be run is not offered", () => {
  show(PICTURE, IDLE);
  fireEvent.change(screen.getByLabelText("Scheduler"), { target: { value: "nearest" } });
  assert.ok(screen.getByRole<HTMLButtonElement>("button", { name: /Run nearest/ }).disabled);
});

test("queues are live, and those of an earlier run are gone when another starts", () => {
  const { kernel } = show(PICTURE, IDLE, { type: "run", state: "running", scheduler: "end-cloud", time_s: 20 });
  [status(0.25, 3), status(0.5, 7)].forEach((one) => kernel.emit(one));
  const row = screen.getByRole("rowheader", { name: "end" }).parentElement!;
  assert.equal(within(row).getByLabelText("Requests that wait at end").getAttribute("value"), "7");
  assert.match(row.textContent!, /25%/);
  assert.match(labelOf(/^Queue of end/), /7 now, at most 7/);
  kernel.emit(status(0.75, 1));
  assert.match(labelOf(/^Queue of end/), /1 now, at most 7/);
  // Another view of the widget has begun, so that all of them are sent again.
  kernel.emit(status(0.25, 3));
  assert.match(labelOf(/^Queue of end/), /3 now, at most 3/);
  kernel.emit({ type: "run", state: "starting" });
  assert.equal(screen.queryByRole("img", { name: /^Queue of end/ }), null);
});

test("what was measured stands beside what was expected", () => {
  const measured = { ...point("end-cloud", 1), mean_s: 0.004 };
  show(PICTURE, {
    type: "run",
    state: "done",
    scheduler: "end-cloud",
    threshold: 0.5,
    measured,
    expected: point("end-cloud", 1),
    num_requests: 400,
    num_unanswered: 2,
  });
  assert.match(document.body.textContent!, /end-cloud at the threshold 0.5: 400 requests, 2 unanswered/);
  assert.match(screen.getByRole("rowheader", { name: "measured" }).parentElement!.textContent!, /4 ms/);
  assert.match(screen.getByRole("rowheader", { name: "expected" }).parentElement!.textContent!, /2 ms/);
});

test("what another process runs is followed, and not stopped from here", () => {
  show(PICTURE, { type: "run", state: "running", scheduler: "end", time_s: 20, is_elsewhere: true }, status(3, 2));
  assert.match(document.body.textContent!, /end: 3 of 20 s, started by another process/);
  assert.match(labelOf(/^Queue of end/), /2 now/);
  assert.equal(screen.queryByRole("button", { name: /Stop|Run/ }), null);
});

test("a problem and a kernel that is gone are stated", () => {
  const { kernel, connection } = show({
    ...IDLE,
    problem: { problem: "its profile has no times of frames", field: "tiers.end.machine" },
  });
  assert.match(screen.getByRole("alert").textContent!, /tiers.end.machine: Its profile has no times of frames/);
  kernel.disconnect();
  void act(() => connection.send({ type: "hello" }));
  assert.match(screen.getByRole("alert").textContent!, /No longer connected/);
});

test("the panel lists files of tiers, and shows one over a connection that comes back", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  Object.assign(globalThis, { WebSocket: FakeSocket });
  const { controller, reply, state } = buildController();
  const files: ExperimentFile[] = [
    { path: "digits.yaml", name: "digits", kind: "experiment" },
    { path: "mine/tiers.yaml", name: "tiers", kind: "tiers" },
  ];
  reply(files);
  const view = render(<Tiers controller={controller} />);
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  await new Promise(setImmediate);
  assert.equal(screen.queryByText("digits.yaml"), null);
  assert.match(screen.getByRole("group", { name: "a file of tiers" }).textContent!, /from: a\/best/);
  fireEvent.click(screen.getByRole("button", { name: "mine/tiers.yaml" }));
  assert.equal(state.view.tiers, "mine/tiers.yaml");

  view.rerender(<Tiers controller={controller} />);
  const [first] = FakeSocket.made;
  assert.equal(first.url, "ws://localhost/workbench/api/tiers?path=mine%2Ftiers.yaml");
  act(() => first.onopen!());
  assert.deepEqual(first.sent, [{ type: "hello" }]);
  act(() => first.onmessage!({ data: JSON.stringify(PICTURE) }));
  assert.equal(slider().value, "2");
  act(() => first.close());
  assert.match(screen.getByRole("alert").textContent!, /cannot be reached; trying again/);
  context.mock.timers.tick(1000);
  const [, second] = FakeSocket.made;
  act(() => second.onopen!());
  assert.equal(screen.getByRole("alert").textContent, "");
  view.unmount();
  assert.equal(FakeSocket.made.length, 2, "a view that is closed does not come back");
});
