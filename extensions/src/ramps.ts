// Colours for values: from bad to good, or from low to high where no value is better.
import type { Theme } from "./theme";

type Rgb = [red: number, green: number, blue: number];

/** As `colour_scale` in `plots/theme.py`: the good end stands out from the ground. */
const GOOD: Record<Theme["name"], string[]> = {
  light: ["#f3d27a", "#e79a5b", "#c8617a", "#86469c", "#2f2c7a"],
  dark: ["#4b4a8f", "#8a5bb0", "#d06a86", "#eba56a", "#f8de8f"],
};
/** As `SCALE` in `plots/colouring.py`. */
const EVEN = ["#3b6fd4", "#1f9bb5", "#4aa564", "#c9a227", "#b0479b"];

/** The colour of a share from 0, the worst, to 1, the best. */
export function goodness(share: number, theme: Theme): Rgb {
  return mixed(GOOD[theme.name], share);
}

/** The colour of a place from 0 to 1, where no place is better. */
export function evenly(place: number): Rgb {
  return mixed(EVEN, place);
}

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red},${green},${blue})`;
}

function mixed(shades: string[], share: number): Rgb {
  const at = Math.min(Math.max(share, 0), 1) * (shades.length - 1);
  const from = Math.min(Math.floor(at), shades.length - 2);
  const [low, high] = [partsOf(shades[from]), partsOf(shades[from + 1])];
  return low.map((part, index) => Math.round(part + (high[index] - part) * (at - from))) as Rgb;
}

function partsOf(shade: string): Rgb {
  return [1, 3, 5].map((at) => parseInt(shade.slice(at, at + 2), 16)) as Rgb;
}
