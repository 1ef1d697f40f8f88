// Plotly, loaded on first use, and figures of the server in the colours of the theme.
import type { Theme } from "./theme";

/** A point that was clicked, with its trace as it was written in Python. */
export interface ClickedPoint {
  data: { meta?: unknown };
  customdata?: unknown;
}

interface DrawnAxis {
  /** From pixels of the plot to a place on the axis. */
  p2d(pixel: number): number;
  d2p(place: number): number;
  _offset: number;
}

/** An element that plotly draws in. */
export interface PlotlyElement extends HTMLElement {
  _fullLayout?: { xaxis?: DrawnAxis; yaxis?: DrawnAxis };
  on?(event: "plotly_click", listener: (event: { points: ClickedPoint[] }) => void): void;
  removeAllListeners?(event: "plotly_click"): void;
}

interface Plotly {
  react(element: HTMLElement, data: unknown, layout: unknown, config: unknown): Promise<unknown>;
  purge(element: HTMLElement): void;
  Plots?: { resize(element: HTMLElement): void };
}

export interface Figure {
  data: unknown[];
  layout: Record<string, unknown>;
}

declare global {
  interface Window {
    Plotly?: Plotly;
  }
}

let loading: Promise<Plotly> | null = null;

export function loadPlotly(baseUrl: string): Promise<Plotly> {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading ??= new Promise<Plotly>((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${baseUrl}static/workbench/plotly.min.js`;
    script.onload = () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("plotly.js did not start")));
    script.onerror = () => reject(new Error("plotly.js cannot be loaded from the server"));
    document.head.append(script);
  }).catch((error: unknown) => {
    loading = null;
    throw error;
  });
  return loading;
}

/** The colours that the figures are written in, by what they mean. */
const WRITTEN: Record<string, (theme: Theme) => string> = {
  "#1b1f24": (theme) => theme.ink,
  "#57606a": (theme) => theme.muted,
  "#b8c0c8": (theme) => theme.faint,
  "#e6e9ec": (theme) => theme.line,
  "#4b0082": (theme) => theme.best,
  "#0072b2": (theme) => theme.states.complete,
  "#aab4be": (theme) => theme.states.pruned,
  white: (theme) => theme.surface,
};

/** `key` names the figure: what a person zoomed or switched off stays when its data change. */
export function themed(figure: Figure, theme: Theme, key: string): Figure {
  const layout = recoloured(figure.layout, theme) as Figure["layout"];
  const { width: _, ...rest } = layout;
  return {
    data: recoloured(figure.data, theme) as unknown[],
    layout: {
      ...rest,
      autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      uirevision: key,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: theme.muted, activecolor: theme.accent },
      font: { ...(layout.font as object), color: theme.ink },
      hoverlabel: { bgcolor: theme.surface, bordercolor: theme.muted, font: { color: theme.ink } },
    },
  };
}

const TRANSLUCENT_WHITE = /^rgba\(255, ?255, ?255, ?([\d.]+)\)$/;

/** Only what stands where a colour stands: a person may call a value "white". */
function recoloured(value: unknown, theme: Theme, isColour = false): unknown {
  if (typeof value === "string") return isColour ? inTheme(value, theme) : value;
  if (Array.isArray(value)) return value.map((one) => recoloured(one, theme, isColour));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [
      key,
      recoloured(one, theme, key.endsWith("color") || key === "colorscale"),
    ]),
  );
}

function inTheme(colour: string, theme: Theme): string {
  const opacity = TRANSLUCENT_WHITE.exec(colour)?.[1];
  if (opacity) return theme.surface.replace(/[\d.]+\)$/, `${opacity})`);
  return WRITTEN[colour]?.(theme) ?? (theme.name === "dark" ? lightened(colour) : colour);
}

const OPAQUE = /^(?:#([\da-f]{2})([\da-f]{2})([\da-f]{2})|rgb\((\d+), ?(\d+), ?(\d+)\))$/i;
/** Of relative luminance: enough for a line on black. */
const LEAST_LUMINANCE = 0.13;

/** A colour that can be seen on a dark ground: the good end of the scales is almost black. */
function lightened(colour: string): string {
  const found = OPAQUE.exec(colour);
  if (!found) return colour;
  const parts = found[1] ? found.slice(1, 4).map((one) => parseInt(one, 16)) : found.slice(4, 7).map(Number);
  for (let white = 0; white < 1; white += 0.04) {
    const mixed = parts.map((part) => Math.round(part + (255 - part) * white));
    if (luminance(mixed) >= LEAST_LUMINANCE) return white ? `rgb(${mixed.join(", ")})` : colour;
  }
  return colour;
}

function luminance(rgb: readonly number[]): number {
  const [red, green, blue] = rgb.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The trial that a clicked point stands for, as `TRIALS` of the Python figures marks them; null for none. */
export function trialOf(points: readonly ClickedPoint[]): number | null {
  for (const { data, customdata } of points) {
    const first = Array.isArray(customdata) ? (customdata[0] as unknown) : customdata;
    if (data.meta === "trials" && typeof first === "number") return first;
  }
  return null;
}
