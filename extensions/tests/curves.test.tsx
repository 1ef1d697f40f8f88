import "./dom";
import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { cleanup, fireEvent, render, screen } from "@testing-library/preact";
import { csvOf, distanceFromBest, drawingOf, isFlat } from "../src/chart_drawing";
import { counterpartOf } from "../src/counterpart";
import { Curve } from "../src/curve";
import { drawLine } from "../src/draw_lines";
import { titledCopy } from "../src/titled_copy";
import { withStripes } from "../src/equal_lines";
import { extentOf } from "../src/extent";
import { FIRST_VIEW, type ChartLooks, type ChartState, type ViewState } from "../src/state";
import { subscriptionOf } from "../src/subscription";
import { App } from "../src/views/app";
import { Chart } from "../src/views/chart";
import { madeChart } from "./frame_builder";
import { buildController, buildRun } from "./view_builder";

afterEach(cleanup);

const WINDOW = { offset: 0, limit: 40 };

function buildChart(metric = "val_loss", values = [4, 2, 3]): ChartState {
  const update = madeChart({
    metric,
    axis: "epoch",
    shown: [0, 1, 2],
    states: ["pruned", "running", "complete"],
    best_trial: 2,
    num_trials: 3,
  });
  const curve = () => Curve.of(Float64Array.of(1, 2, 3), Float64Array.from(values));
  return { update, curves: new Map([0, 1, 2].map((trial) => [trial, curve()])), band: null, best: null };
}

function view(looks: Partial<ChartLooks> = {}): ViewState {
  return { ...FIRST_VIEW, chart: { ...FIRST_VIEW.chart, ...looks } };
}

const { theme } = buildController().controller;

test("a running mean starts at the first value, keeps gaps, and leaves the points where they are", () => {
  const curve = Curve.of(Float64Array.of(1, 2, 3, 4), Float64Array.of(4, NaN, 2, 2));
  const smooth = curve.smoothed(0.5);
  const expected = [4, NaN, (0.25 * 4 + 0.5 * 2) / 0.75, (0.125 * 4 + 0.25 * 2 + 0.5 * 2) / 0.875];
  expected.forEach((value, index) =>
    assert.ok(Object.is(smooth.y[index], value) || Math.abs(smooth.y[index] - value) < 1e-12),
  );
  assert.deepEqual([...smooth.x.subarray(0, 4)], [1, 2, 3, 4]);
  assert.equal(curve.smoothed(0), curve);
});

test("the metric of training belongs to that of validation, both ways", () => {
  assert.equal(counterpartOf("val_loss", ["val_loss", "train_loss"]), "train_loss");
  assert.equal(counterpartOf("val_loss", ["val_loss", "loss"]), "loss");
  assert.equal(counterpartOf("train_loss", ["eval_loss"]), "eval_loss");
  assert.equal(counterpartOf("lr", ["lr", "loss"]), null);
});

test("the ends of the axis are those that were chosen, whatever lies between them", () => {
  const range = (looks: Partial<ChartLooks>) => extentOf(drawingOf(buildChart(), view(looks), theme)).y;
  assert.deepEqual(range({ low: 1, high: 2.5 }), [1, 2.5]);
  assert.equal(range({ high: 10 })[1], 10);
  assert.deepEqual(range({ low: 9, high: 1 }), [1, 9]);
  assert.deepEqual(range({ low: -1, logarithmic: true }), range({ logarithmic: true }));
  assert.deepEqual(range({ low: 0, high: 3, logarithmic: true }), [range({ logarithmic: true })[0], 3]);
  const [low, high] = range({});
  assert.deepEqual(range({ low: 9 }), [9, 9 + high - low]);
  assert.deepEqual(range({ high: -9 }), [-9 - (high - low), -9]);
  assert.ok(range({ low: 1e9, logarithmic: true })[1] > 1e9);
});

test("a limit that is being typed outlasts new curves, and counts once it is entered", () => {
  const { controller, state } = buildController({ run: buildRun(), chart: buildChart() });
  const { rerender } = render(<Chart controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: /View/ }));
  const field = () => screen.getByLabelText<HTMLInputElement>("axis from");
  fireEvent.input(field(), { target: { value: "1.5" } });
  state.chart = buildChart("val_loss", [5, 4, 3]);
  rerender(<Chart controller={controller} />);
  assert.deepEqual([field().value, state.view.chart.low], ["1.5", null]);
  fireEvent.change(field());
  assert.equal(state.view.chart.low, 1.5);
});

test("in the menu of a chart the arrows choose from a list, and elsewhere move the focus", () => {
  const { controller } = buildController({ run: buildRun(), chart: buildChart() });
  render(<Chart controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: /View/ }));
  const isLeftAlone = (element: Element) => fireEvent.keyDown(element, { key: "ArrowDown" });
  assert.ok(isLeftAlone(screen.getByLabelText("smoothing")));
  assert.ok(isLeftAlone(screen.getByLabelText("axis to")));
  assert.equal(isLeftAlone(screen.getByRole("button", { name: "Save as PNG" })), false);
});

test("whole epochs have whole numbers on their axis", () => {
  assert.equal(drawingOf(buildChart(), view(), theme).xKind, "whole");
  const chart = buildChart();
  chart.curves.set(0, Curve.of(Float64Array.of(0.5, 1), Float64Array.of(1, 1)));
  assert.equal(drawingOf(chart, view(), theme).xKind, "number");
});

test("training is drawn dashed for the trials that stand out, and a running trial dotted", () => {
  const lines = drawingOf(buildChart(), view(), theme, buildChart("train_loss")).lines;
  assert.deepEqual(
    lines.map(({ label, dashed, dotted }) => [label, Boolean(dashed), Boolean(dotted)]),
    [
      ["Trial 0, pruned", false, false],
      ["Trial 1, running", false, true],
      ["Trial 2, train_loss", true, false],
      ["Trial 2, complete, best", false, false],
    ],
  );
});

test("a trial that continues another one begins on its curve, and the best has a path", () => {
  const chart = buildChart();
  chart.update = { ...chart.update, joints: [{ trial: 2, x: 0.5, y: 9 }], path: [0, 2] };
  const lines = drawingOf(chart, view(), theme).lines;
  const of = (key: string) => lines.find((line) => line.key === key)!;
  assert.deepEqual([of("2").curve.x[0], of("2").curve.y[0]], [0.5, 9]);
  assert.deepEqual(
    [of("0").colour, of("0").width, of("2").colour, of("1").colour === theme.best],
    [theme.best, 3, theme.best, false],
  );
  assert.match(of("0").label, /leads to the best/);
});

test("lines have the colour of their number of workers, which the legend names", () => {
  const chart = buildChart();
  chart.update = { ...chart.update, num_workers: [1, 4, 4] };
  const [one, four] = ["0", "1"].map((key) => drawingOf(chart, view(), theme).lines.find((line) => line.key === key)!);
  assert.deepEqual([one.colour, four.colour], [theme.categories[0], theme.categories[1]]);
  const { controller } = buildController({ run: buildRun(), chart });
  render(<Chart controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "4 workers" }));
  assert.deepEqual(
    drawingOf(chart, controller.state.view, theme).lines.map(({ key }) => key),
    ["0", "2"],
  );
});

test("where curves flatten, the distance from the best is offered, and drawn without the best itself", () => {
  const chart = buildChart();
  const x = Float64Array.from({ length: 10 }, (_, at) => at + 1);
  const y = x.map((at) => 1 + Math.exp(-at));
  chart.curves.set(2, Curve.of(x, y));
  chart.best = Curve.of(x, y);
  assert.ok(isFlat(chart));
  assert.ok(
    !isFlat({
      ...chart,
      best: Curve.of(
        x,
        x.map((at) => 20 - at),
      ),
    }),
  );
  const { controller, state } = buildController({ run: buildRun(), chart });
  render(<Chart controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "Show the distance from the best" }));
  assert.equal(state.view.chart.distance, true);
  const far = distanceFromBest(drawingOf(chart, state.view, theme), y[9], "distance");
  const line = far.lines.find(({ key }) => key === "2")!;
  assert.ok(Math.abs(line.curve.y[0] - (Math.exp(-1) - Math.exp(-10))) < 1e-12);
  assert.ok(Number.isNaN(line.curve.y[9]));
  assert.equal(far.logarithmic, true);
});

test("a run without throughput and epochs has neither a tab nor an axis for them", () => {
  const run = buildRun({ axes: ["step", "time"], has_throughput: false });
  const { controller } = buildController({ run, chart: buildChart() });
  render(<App controller={controller} />);
  assert.equal(screen.queryByRole("tab", { name: "Throughput" }), null);
  const axis = screen.getByLabelText<HTMLSelectElement>("Horizontal axis");
  assert.deepEqual(
    [...axis.options].map(({ value }) => value),
    ["step", "time"],
  );
});

test("a click on the legend hides its lines, and another one shows them", () => {
  const chart = buildChart();
  const { controller, state } = buildController({ run: buildRun(), chart });
  const { rerender } = render(<Chart controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: "pruned" }));
  assert.deepEqual(
    drawingOf(chart, state.view, theme).lines.map(({ key }) => key),
    ["1", "2"],
  );
  rerender(<Chart controller={controller} />);
  const entry = screen.getByRole("button", { name: "pruned", pressed: false });
  fireEvent.click(entry);
  assert.deepEqual(state.view.chart.hidden, []);
});

test("further metrics and the metric of training are subscribed to, and drawn beside the first", () => {
  const run = buildRun({ metrics: ["val_loss", "train_loss", "lr"] });
  const further = new Map([["lr", buildChart("lr")]]);
  const looks = { further: ["lr"], withOther: true };
  const { controller, state } = buildController({ run, chart: buildChart(), further }, "wide", {
    chart: { ...FIRST_VIEW.chart, ...looks },
  });
  assert.deepEqual(subscriptionOf(state, "wide", WINDOW, WINDOW).chart!.further, ["train_loss", "lr"]);
  render(<Chart controller={controller} />);
  assert.equal(screen.getAllByRole("img", { name: /by Step|by / }).length, 2);
});

test("a notebook cell has the logarithmic axis, too, and no grid", () => {
  const { controller, state } = buildController({ run: buildRun(), chart: buildChart() }, "output");
  render(<Chart controller={controller} />);
  fireEvent.click(screen.getByRole("button", { name: /View/ }));
  return screen.findByRole("checkbox", { name: "log" }).then((box) => {
    fireEvent.click(box);
    assert.equal(state.view.chart.logarithmic, true);
    assert.equal(screen.queryByText("more metrics"), null);
  });
});

test("the file of curves has one line per report, and no formula", () => {
  const chart = buildChart("=bad");
  const lines = csvOf(chart).trim().split("\r\n");
  assert.equal(lines[0], "trial,state,Step,'=bad");
  assert.deepEqual(lines.slice(1, 3), ["0,pruned,1,4", "0,pruned,2,2"]);
  assert.equal(lines.length, 10);
});

test("a line that lies on others of its beginning leaves gaps in which they are seen", () => {
  const chart = buildChart();
  const stripes = () =>
    withStripes(drawingOf(chart, view({ chosen: [0, 1] }), theme).lines).map(({ key, stripe }) => [
      key,
      stripe?.join("/"),
    ]);
  assert.deepEqual(stripes(), [
    ["0", undefined],
    ["1", "1/3"],
    ["2", "2/3"],
  ]);
  chart.curves.set(1, Curve.of(Float64Array.of(1, 2, 3), Float64Array.of(4, 2.5, 3)));
  assert.deepEqual(stripes(), [
    ["0", undefined],
    ["1", undefined],
    ["2", "1/2"],
  ]);
  chart.curves.set(0, Curve.of(Float64Array.of(1, 2), Float64Array.of(4, 2)));
  chart.curves.set(1, Curve.of(Float64Array.of(1, 2, 3, 4), Float64Array.of(4, 2, 3, 5)));
  assert.deepEqual(stripes(), [
    ["1", undefined],
    ["2", "1/3"],
    ["0", "2/3"],
  ]);
});

test("a stair that ends on a step of another one is drawn over it", () => {
  const stair = (key: string, x: number[], y: number[]) => ({
    ...{ key, label: key, colour: key, width: 2, opacity: 1, stepped: true },
    curve: Curve.of(Float64Array.from(x), Float64Array.from(y)),
  });
  const stripes = (...lines: ReturnType<typeof stair>[]) =>
    withStripes(lines).map(({ key, stripe }) => [key, stripe?.[0]]);
  const long = stair("long", [0, 4, 9], [1, 2, 2]);
  assert.deepEqual(stripes(stair("short", [0, 3], [1, 1]), long), [
    ["long", undefined],
    ["short", 1],
  ]);
  assert.deepEqual(stripes(stair("other", [0, 3], [1, 2]), long), [
    ["other", undefined],
    ["long", undefined],
  ]);
});

test("a line of stripes leaves the other dashes free", () => {
  const done: unknown[] = [];
  const context = {
    setLineDash: (dashes: number[]) => done.push(dashes),
    set lineDashOffset(offset: number) {
      done.push(offset);
    },
    beginPath: () => undefined,
    moveTo: () => undefined,
    lineTo: () => undefined,
    stroke: () => undefined,
  } as unknown as CanvasRenderingContext2D;
  const plane = {
    x: [0, 10] as [number, number],
    y: [0, 10] as [number, number],
    logarithmic: false,
    xLogarithmic: false,
  };
  const curve = Curve.of(Float64Array.of(1, 2), Float64Array.of(5, 6));
  const canvas = { context, left: 0, top: 0, width: 10, height: 10, ratio: 2, ...plane };
  drawLine(canvas, { key: "1", label: "", colour: "red", width: 1, opacity: 1, curve, stripe: [2, 3] });
  assert.deepEqual(done, [[14, 28], -28, [], 0]);
});

test("the last rise of a stair is drawn without dashes, so that it ends where it ends", () => {
  const done: string[] = [];
  const context = {
    setLineDash: (dashes: number[]) => done.push(`dashes ${dashes.length}`),
    beginPath: () => undefined,
    moveTo: (x: number, y: number) => done.push(`from ${x} ${y}`),
    lineTo: (x: number, y: number) => done.push(`to ${x} ${y}`),
    stroke: () => done.push("stroke"),
  } as unknown as CanvasRenderingContext2D;
  const plane = {
    x: [0, 10] as [number, number],
    y: [0, 10] as [number, number],
    logarithmic: false,
    xLogarithmic: false,
  };
  const look = { key: "best", label: "best so far", colour: "red", width: 1, opacity: 1, dashed: true, stepped: true };
  const curve = Curve.of(Float64Array.of(1, 2), Float64Array.of(5, 6));
  drawLine({ context, left: 0, top: 0, width: 10, height: 10, ratio: 1, ...plane }, { ...look, curve });
  const last = done.lastIndexOf("dashes 0", done.lastIndexOf("stroke"));
  assert.deepEqual(done.slice(last, last + 4), ["dashes 0", "from 2 5", "to 2 4", "stroke"]);
});

test("the picture of a chart names what it shows above the chart", () => {
  const drawn: unknown[][] = [];
  const record =
    (name: string) =>
    (...given: unknown[]) =>
      void drawn.push([name, ...given]);
  const context = { fillRect: record("fill"), fillText: record("text"), drawImage: record("chart") };
  const copy = { width: 0, height: 0, getContext: () => context };
  const made = mock.method(document, "createElement", () => copy);
  const chart = { width: 400, height: 200 } as HTMLCanvasElement;
  titledCopy(chart, "val_loss · digits (digits-1)", { surface: "white", ink: "black" } as never, 2);
  made.mock.restore();
  assert.deepEqual([copy.width, copy.height], [400, 252]);
  assert.deepEqual(drawn, [
    ["fill", 0, 0, 400, 252],
    ["text", "val_loss · digits (digits-1)", 16, 26, 368],
    ["chart", chart, 0, 52],
  ]);
});
