// Light or dark, and the colours of it: the host's variables where there are any, ours elsewhere.

export type ThemeName = "light" | "dark";

/** The colours that are drawn on a canvas or in a figure, where style sheets do not reach. */
export interface Theme {
  name: ThemeName;
  ink: string;
  muted: string;
  faint: string;
  line: string;
  grid: string;
  surface: string;
  accent: string;
  best: string;
  states: Record<string, string>;
  categories: string[];
}

const STATES = ["waiting", "running", "complete", "pruned", "stopped", "failed"];
const NUM_CATEGORIES = 8;

const DARK = "(prefers-color-scheme: dark)";
const FORCED = "(forced-colors: active)";

/** The theme of the host; where colours are forced, that of the system, which paints the host's pages then. */
export function themeName(): ThemeName {
  const flag = document.body.dataset.jpThemeLight;
  if (flag !== undefined && !matchMedia(FORCED).matches) return flag === "false" ? "dark" : "light";
  return matchMedia(DARK).matches ? "dark" : "light";
}

/** The colour of one of several things that are compared. */
export function categoryOf(index: number, theme: Theme): string {
  return theme.categories[index % theme.categories.length];
}

export function readTheme(root: HTMLElement): Theme {
  const style = getComputedStyle(root);
  const colour = (name: string) => resolved(style.getPropertyValue(`--workbench-${name}`).trim());
  return {
    name: root.dataset.theme === "dark" ? "dark" : "light",
    ink: colour("ink"),
    muted: colour("muted"),
    faint: colour("faint"),
    line: colour("line"),
    grid: colour("grid"),
    surface: colour("surface"),
    accent: colour("accent"),
    best: colour("best"),
    states: Object.fromEntries(STATES.map((state) => [state, colour(`state-${state}`)])),
    categories: Array.from({ length: NUM_CATEGORIES }, (_, index) => colour(`category-${index}`)),
  };
}

const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

/** Any colour of a style sheet as rgba(), which everything that draws understands. */
function resolved(colour: string): string {
  if (!pixel) return colour;
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
  return `rgba(${red},${green},${blue},${Math.round((alpha / 255) * 100) / 100})`;
}

/** Calls back after every change of theme; returns what ends that. */
export function followTheme(changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  observer.observe(document.body, {
    attributes: true,
    attributeFilter: ["data-jp-theme-name", "data-jp-theme-light"],
  });
  const media = [DARK, FORCED].map((query) => matchMedia(query));
  for (const each of media) each.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    for (const each of media) each.removeEventListener("change", changed);
  };
}
