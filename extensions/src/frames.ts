// Binary frames: a header of JSON with a update in it, then columns of numbers that it points to.
import type { Column, Update } from "./types";

export type Numbers = Float32Array | Float64Array;

export interface Frame {
  update: Update;
  /** Returns a column without copying it; what is kept must be copied. */
  column(column: Column): Numbers;
}

export class FrameError extends Error {}

const HEADER_START = 4;

export function decodeFrame(bytes: ArrayBuffer): Frame {
  if (bytes.byteLength < HEADER_START) throw new FrameError("a frame is too short");
  const headerLength = new DataView(bytes).getUint32(0, true);
  const numbersStart = HEADER_START + headerLength;
  if (numbersStart > bytes.byteLength) throw new FrameError("a frame ends within its header");
  const text = new TextDecoder().decode(new Uint8Array(bytes, HEADER_START, headerLength));
  let update: Update;
  try {
    update = JSON.parse(text) as Update;
  } catch {
    throw new FrameError("the header of a frame is not JSON");
  }
  return { update, column: (column) => readColumn(bytes, numbersStart, column) };
}

function readColumn(bytes: ArrayBuffer, numbersStart: number, column: Column): Numbers {
  const kind = column.type === "f32" ? Float32Array : Float64Array;
  const start = numbersStart + column.offset;
  if (column.offset < 0 || start + column.count * kind.BYTES_PER_ELEMENT > bytes.byteLength) {
    throw new FrameError("a column lies outside its frame");
  }
  return new kind(bytes, start, column.count);
}

/** A number as it travels in JSON, where NaN and infinities are texts. */
export function toNumber(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (value === "NaN") return NaN;
  if (value === "Infinity") return Infinity;
  if (value === "-Infinity") return -Infinity;
  return null;
}
