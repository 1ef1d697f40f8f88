// Plotly, loaded on first use, and figures of the server in the colours of the theme.
import type { Theme } from "./theme";

interface Plotly {
  react(element: HTMLElement, data: unknown, layout: unknown, config: unknown): Promise<unknown>;
  purge(element: HTMLElement): void;
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
  "#0072b2": (theme) => theme.states.complete,
  "#aab4be": (theme) => theme.states.pruned,
  white: (theme) => theme.surface,
};

export function themed(figure: Figure, theme: Theme): Figure {
  const layout = recoloured(figure.layout, theme) as Figure["layout"];
  const { width: _, ...rest } = layout;
  return {
    data: recoloured(figure.data, theme) as unknown[],
    layout: {
      ...rest,
      autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
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
    Object.entries(value).map(([key, one]) => [key, recoloured(one, theme, key.endsWith("color"))]),
  );
}

function inTheme(colour: string, theme: Theme): string {
  const opacity = TRANSLUCENT_WHITE.exec(colour)?.[1];
  if (opacity) return theme.surface.replace(/[\d.]+\)$/, `${opacity})`);
  return WRITTEN[colour]?.(theme) ?? colour;
}
