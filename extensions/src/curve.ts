// Points of a curve that grows at its end: typed arrays that double, so that appending costs little.
import type { Numbers } from "./frames";

const FIRST_CAPACITY = 64;

export class Curve {
  x: Float64Array = new Float64Array(FIRST_CAPACITY);
  y: Float64Array = new Float64Array(FIRST_CAPACITY);
  length = 0;

  static of(x: Numbers, y: Numbers): Curve {
    const curve = new Curve();
    curve.splice(0, x, y);
    return curve;
  }

  /** Keeps the first `start` points and appends these; false where there are fewer to keep. */
  splice(start: number, x: Numbers, y: Numbers): boolean {
    if (start > this.length || x.length !== y.length) return false;
    const length = start + x.length;
    if (length > this.x.length) this.grow(length);
    this.x.set(x, start);
    this.y.set(y, start);
    this.length = length;
    return true;
  }

  /** Whether anything of it can be drawn. */
  get isVisible(): boolean {
    return this.y.subarray(0, this.length).some(Number.isFinite);
  }

  /** Whether x counts something, such as whole epochs. */
  get isWhole(): boolean {
    return this.x.subarray(0, this.length).every(Number.isInteger);
  }

  /** A running mean in which what came before has a weight; without the pull of the first value. */
  smoothed(weight: number): Curve {
    if (!weight) return this;
    const y = new Float64Array(this.length);
    let sum = 0;
    let total = 0;
    for (let index = 0; index < this.length; index += 1) {
      const value = this.y[index];
      if (Number.isFinite(value)) {
        sum = weight * sum + (1 - weight) * value;
        total = weight * total + (1 - weight);
      }
      y[index] = Number.isFinite(value) ? sum / total : value;
    }
    return Curve.of(this.x.subarray(0, this.length), y);
  }

  private grow(length: number): void {
    const capacity = Math.max(length, this.x.length * 2);
    for (const axis of ["x", "y"] as const) {
      const larger = new Float64Array(capacity);
      larger.set(this[axis].subarray(0, this.length));
      this[axis] = larger;
    }
  }

  /** Index of the last point whose x is at most `x`; -1 where there is none. */
  before(x: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.x[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}
