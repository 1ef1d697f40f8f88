// Large counts in words that are read at a glance.

const UNITS = ["", " thousand", " million", " billion", " trillion"];

/** Such as "1.23 million"; below ten thousand every digit. */
export function formatCount(count: number): string {
  if (Math.abs(count) < 10_000) return Number.isInteger(count) ? count.toLocaleString("en") : count.toPrecision(3);
  let value = count;
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${Number(value.toPrecision(3))}${UNITS[unit]}`;
}
