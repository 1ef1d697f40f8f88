import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeFrame, FrameError, toNumber } from "../src/frames";
import { MadeNumbers, madeFrame } from "./frame_builder";

test("a frame gives back its picture and its columns", () => {
  const numbers = new MadeNumbers();
  const wide = numbers.add([1, 2.5, NaN]);
  const narrow = numbers.add([0.5], "f32");
  const frame = decodeFrame(madeFrame({ frame: 7, problem: { problem: "50 % – ünïcödé" } }, numbers));
  assert.equal(frame.update.frame, 7);
  assert.equal(frame.update.problem?.problem, "50 % – ünïcödé");
  assert.deepEqual([...frame.column(wide)], [1, 2.5, NaN]);
  assert.deepEqual([...frame.column(narrow)], [0.5]);
});

test("a frame that was cut is refused", () => {
  const whole = madeFrame({ seq: 1 });
  assert.throws(() => decodeFrame(whole.slice(0, 2)), FrameError);
  assert.throws(() => decodeFrame(whole.slice(0, 12)), FrameError);
});

test("a column outside its frame is refused", () => {
  const frame = decodeFrame(madeFrame({}));
  assert.throws(() => frame.column({ offset: 0, count: 1000, type: "f64" }), FrameError);
  assert.throws(() => frame.column({ offset: -8, count: 1, type: "f64" }), FrameError);
});

test("numbers that JSON cannot say travel as texts", () => {
  assert.deepEqual(["NaN", "Infinity", "-Infinity", 3, "x", null].map(toNumber), [
    NaN,
    Infinity,
    -Infinity,
    3,
    null,
    null,
  ]);
});
