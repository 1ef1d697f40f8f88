// What the figures of the analysis draw, from columns made by hand.
import assert from "node:assert/strict";
import { test } from "node:test";
import { courseOf, distributionOf, frontOf, pairOf, parallelOf, sliceOf, type Looks } from "../src/analysis_drawings";
import { css, goodness } from "../src/ramps";
import { buildAnalysis, buildFront, THEME } from "./view_builder";

const LOOKS: Looks = {
  theme: THEME,
  matching: null,
  chosen: [],
  colour: null,
  logarithmic: false,
  filter: "",
};

test("parallel lines go through the places of a trial, the best one on top and those that do not match below", () => {
  const data = buildAnalysis();
  const { lines, uprights } = parallelOf(data, { ...LOOKS, matching: new Set([0, 2]), filter: "lr >= 0.01" });
  assert.deepEqual(
    lines.map(({ key }) => key),
    ["1", "0", "2"],
  );
  assert.equal(lines[0].colour, THEME.grid);
  assert.equal(lines[2].colour, THEME.best);
  assert.deepEqual([...lines[2].curve.y.subarray(0, 3)], [0.75, -0.12, 1]);
  assert.deepEqual(
    uprights!.map(({ title, brush }) => [title, brush]),
    [
      ["lr", [0.5, 1]],
      ["momentum", null],
      ["accuracy", null],
    ],
  );
  assert.deepEqual(uprights![1].ticks.at(-1), [-0.12, "not set"]);
});

test("slices, the course and the distribution show each trial where it is, and pruned ones hollow", () => {
  const data = buildAnalysis();
  const slice = sliceOf(data, data.axes[0], { ...LOOKS, chosen: [0] });
  assert.deepEqual(
    slice.dots!.map(({ key, x, y, shape }) => [key, x, y, shape]),
    [
      ["1", 0.25, 0.5, "ring"],
      ["0", 0.5, 0.7, "disc"],
      ["0", 0.5, 0.7, "ring"],
      ["2", 0.75, 0.9, "disc"],
    ],
  );
  const [stair] = courseOf(data, LOOKS).lines;
  assert.deepEqual(
    [[...stair.curve.x.subarray(0, 2)], [...stair.curve.y.subarray(0, 2)], stair.stepped],
    [[0, 2], [0.7, 0.9], true],
  );
  const shares = distributionOf(data, LOOKS);
  assert.deepEqual([...shares.lines[0].curve.y.subarray(0, 2)], [0.5, 1]);
  assert.deepEqual(
    shares.dots!.map(({ key }) => key),
    ["0", "2"],
  );
  assert.equal(distributionOf(data, { ...LOOKS, logarithmic: true }).xLogarithmic, true);
});

test("a contour has the best colour where the objective is best, with the highest row first", () => {
  const data = buildAnalysis();
  const { heat } = pairOf(data, 0, "contour", LOOKS);
  // The rows are 0, 1 and 2, 3 from the lowest y; more is better.
  const pixel = (at: number) => css([...heat!.pixels.subarray(4 * at, 4 * at + 3)] as [number, number, number]);
  assert.deepEqual([pixel(2), pixel(1)], [css(goodness(0, THEME)), css(goodness(1, THEME))]);
  const { dots } = pairOf({ ...data, axes: [data.axes[0], data.axes[0]] }, 0, "rank", LOOKS);
  assert.equal(dots!.find(({ key }) => key === "0")!.colour, css(goodness(0, THEME)));
});

test("the border of the front is a stair that no trial beats, with names, limits and the base", () => {
  const { lines, dots, limits } = frontOf(buildFront(), 0, 1, LOOKS);
  const { x, y, length } = lines[0].curve;
  // Both are minimised: between two trials the left one is still the best.
  assert.deepEqual(
    Array.from({ length }, (_, at) => [x[at], y[at]]),
    [
      [1, 9],
      [2, 9],
      [2, 4],
    ],
  );
  assert.deepEqual(dots!.map(({ name }) => name).filter(Boolean), ["base", "#0", "#1"]);
  assert.deepEqual(limits, [{ on: "y", value: 8, label: "at most 8" }]);
  assert.equal(dots!.find(({ key }) => key === "2")!.shape, "cross");

  const larger = buildFront();
  larger.objectives[0] = { ...larger.objectives[0], goal: "maximize" };
  const curve = frontOf(larger, 0, 1, LOOKS).lines[0].curve;
  assert.deepEqual([curve.x[1], curve.y[1]], [1, 4]);
});
