// Frames made by hand, as the server makes them.
import type { ChartUpdate, Column, Update } from "../src/types";

const ALIGNMENT = 8;
const LENGTH_BYTES = 4;

export class MadeNumbers {
  private readonly parts: Uint8Array[] = [];
  private size = 0;

  add(values: number[], type: "f32" | "f64" = "f64"): Column {
    const bytes = new Uint8Array((type === "f32" ? Float32Array : Float64Array).from(values).buffer);
    const column: Column = { offset: this.size, count: values.length, type };
    const padded = new Uint8Array(Math.ceil(bytes.length / ALIGNMENT) * ALIGNMENT);
    padded.set(bytes);
    this.parts.push(padded);
    this.size += padded.length;
    return column;
  }

  get bytes(): Uint8Array {
    const all = new Uint8Array(this.size);
    let at = 0;
    for (const part of this.parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
}

export function madeFrame(update: Partial<Update>, numbers = new MadeNumbers()): ArrayBuffer {
  let header = JSON.stringify({ subscription: 1, frame: 1, ...update });
  const length = new TextEncoder().encode(header).length + LENGTH_BYTES;
  header += " ".repeat((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT);
  const text = new TextEncoder().encode(header);
  const frame = new Uint8Array(LENGTH_BYTES + text.length + numbers.bytes.length);
  new DataView(frame.buffer).setUint32(0, text.length, true);
  frame.set(text, LENGTH_BYTES);
  frame.set(numbers.bytes, LENGTH_BYTES + text.length);
  return frame.buffer;
}

export function madeChart(change: Partial<ChartUpdate>): ChartUpdate {
  return {
    metric: "val_accuracy",
    axis: "step",
    x_title: "Step",
    y_title: "val_accuracy",
    goal: "maximize",
    target: null,
    shown: [],
    states: [],
    best_trial: null,
    y_range: null,
    num_trials: 0,
    curves: [],
    is_overview: true,
    band: null,
    best: null,
    ...change,
  };
}
