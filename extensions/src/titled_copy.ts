// A picture of a chart that is looked at alone: it states of what it is.
import type { Theme } from "./theme";

const TITLE_PX = 26;
const MARGIN_PX = 8;

/** Copies a chart onto the background of the theme, below a title that is narrowed where there is no room. */
export function titledCopy(chart: HTMLCanvasElement, title: string, theme: Theme, ratio: number): HTMLCanvasElement {
  const copy = document.createElement("canvas");
  const above = Math.round(TITLE_PX * ratio);
  copy.width = chart.width;
  copy.height = chart.height + above;
  const context = copy.getContext("2d");
  if (!context) return copy;
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, copy.width, copy.height);
  context.fillStyle = theme.ink;
  context.font = `600 ${12 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  context.fillText(title, MARGIN_PX * ratio, above / 2, copy.width - 2 * MARGIN_PX * ratio);
  context.drawImage(chart, 0, above);
  return copy;
}
