// Points, fields of colour, limits and upright axes on a canvas, in the pixels of the device.
import { across, down, type Canvas } from "./draw_lines";
import type { Dot, Heat, Limit, Upright } from "./drawing";
import type { Theme } from "./theme";

const SMALL = "system-ui, sans-serif";
const UPRIGHT_LABEL_PX = 90;
const BRUSH_PX = 7;

export function drawDot(canvas: Canvas, dot: Dot): void {
  const { context, ratio } = canvas;
  const x = across(canvas)(dot.x);
  const y = down(canvas)(dot.y);
  if (!Number.isFinite(x) || !Number.isFinite(y)) return;
  const size = dot.size * ratio;
  context.globalAlpha = dot.opacity;
  context.setLineDash([]);
  context.beginPath();
  if (dot.shape === "disc") {
    context.fillStyle = dot.colour;
    context.arc(x, y, size, 0, 2 * Math.PI);
    context.fill();
  } else {
    context.strokeStyle = dot.colour;
    context.lineWidth = 1.5 * ratio;
    if (dot.shape === "ring") context.arc(x, y, size, 0, 2 * Math.PI);
    else strokeCross(context, x, y, size, dot.shape === "cross");
    context.stroke();
  }
  context.globalAlpha = 1;
}

function strokeCross(context: CanvasRenderingContext2D, x: number, y: number, size: number, isTilted: boolean): void {
  const [a, b] = isTilted ? [size * 0.8, size * 0.8] : [size * 1.3, 0];
  context.moveTo(x - a, y - b);
  context.lineTo(x + a, y + b);
  context.moveTo(x - b, y + a);
  context.lineTo(x + b, y - a);
}

/** The names of dots, where they cover neither each other nor the edge. */
export function drawDotNames(canvas: Canvas, dots: Dot[], theme: Theme): void {
  const { context, ratio, left, width, top, height } = canvas;
  const toX = across(canvas);
  const toY = down(canvas);
  context.font = `600 ${11 * ratio}px ${SMALL}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  const taken: [number, number, number][] = [];
  for (const dot of dots) {
    const text = dot.name ?? "";
    const textWidth = context.measureText(text).width;
    const gap = (dot.size + 3) * ratio;
    const [x, y] = [toX(dot.x), toY(dot.y)];
    const isRight = x + gap + textWidth < left + width;
    const from = isRight ? x + gap : x - gap - textWidth;
    const isFree = taken.every(
      ([other, end, row]) => Math.abs(row - y) > 11 * ratio || from > end + 3 * ratio || from + textWidth < other,
    );
    if (!isFree || y < top || y > top + height) continue;
    taken.push([from, from + textWidth, y]);
    context.strokeStyle = theme.surface;
    context.lineWidth = 3 * ratio;
    context.strokeText(text, from, y);
    context.fillStyle = dot.colour;
    context.fillText(text, from, y);
  }
}

export function drawHeat({ context, left, top, width, height, x, y }: Canvas, { size, pixels }: Heat): void {
  const small = document.createElement("canvas");
  small.width = small.height = size;
  const pen = small.getContext("2d");
  if (!pen) return;
  const image = pen.createImageData(size, size);
  image.data.set(pixels);
  pen.putImageData(image, 0, 0);
  // The fields cover 0 to 1 of both axes, of which more or less may be on the screen.
  const [pixelX, pixelY] = [width / (x[1] - x[0]), height / (y[1] - y[0])];
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(small, left - x[0] * pixelX, top + (y[1] - 1) * pixelY, pixelX, pixelY);
}

export function drawLimit(canvas: Canvas, { on, value, label }: Limit, theme: Theme): void {
  const { context, ratio, left, top, width, height } = canvas;
  const at = on === "x" ? across(canvas)(value) : down(canvas)(value);
  if (!Number.isFinite(at)) return;
  context.strokeStyle = theme.ink;
  context.fillStyle = theme.ink;
  context.globalAlpha = 0.75;
  context.lineWidth = ratio;
  context.setLineDash([8 * ratio, 4 * ratio]);
  context.beginPath();
  if (on === "x") {
    context.moveTo(at, top);
    context.lineTo(at, top + height);
  } else {
    context.moveTo(left, at);
    context.lineTo(left + width, at);
  }
  context.stroke();
  context.setLineDash([]);
  context.font = `${11 * ratio}px ${SMALL}`;
  context.textBaseline = "bottom";
  const fits = at + 4 * ratio + context.measureText(label).width < left + width;
  context.textAlign = on === "x" && !fits ? "right" : "left";
  const from = on === "x" ? at + (fits ? 4 : -4) * ratio : left + 4 * ratio;
  const isLow = at > top + 16 * ratio;
  context.fillText(label, from, on === "x" ? top + 14 * ratio : isLow ? at - 2 * ratio : at + 14 * ratio);
  context.globalAlpha = 1;
}

export function drawUprights(canvas: Canvas, uprights: Upright[], theme: Theme): void {
  const { context, ratio } = canvas;
  const toX = across(canvas);
  const toY = down(canvas);
  const room = Math.min(UPRIGHT_LABEL_PX * ratio, (toX(1) - toX(0)) * 0.8);
  uprights.forEach((upright, index) => {
    const x = Math.round(toX(index)) + 0.5;
    context.strokeStyle = theme.muted;
    context.lineWidth = ratio;
    context.beginPath();
    context.moveTo(x, toY(0));
    context.lineTo(x, toY(1));
    context.stroke();
    if (upright.brush) {
      const [low, high] = upright.brush.map(toY);
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.3;
      context.fillRect(x - BRUSH_PX * ratio, high, 2 * BRUSH_PX * ratio, low - high);
      context.globalAlpha = 1;
    }
    context.font = `${11 * ratio}px ${SMALL}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.lineWidth = 3 * ratio;
    for (const [place, label] of upright.ticks) {
      haloed(context, shortened(context, label, room), x - 5 * ratio, toY(place), theme.muted, theme.surface);
    }
    context.font = `600 ${11.5 * ratio}px ${SMALL}`;
    context.textAlign = "center";
    // The names of neighbours stand in two rows where there are many.
    const row = uprights.length >= 6 ? index % 2 : 0;
    const title = shortened(context, upright.title, room * (uprights.length >= 6 ? 2.2 : 1.2));
    haloed(context, title, x, toY(1) - (12 + 14 * row) * ratio, theme.ink, theme.surface);
  });
}

function haloed(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  colour: string,
  around: string,
): void {
  context.strokeStyle = around;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** A text that is cut where there is no room for all of it. */
export function shortened(context: CanvasRenderingContext2D, text: string, room: number): string {
  if (context.measureText(text).width <= room) return text;
  for (let length = text.length - 1; length > 1; length -= 1) {
    const cut = `${text.slice(0, length)}…`;
    if (context.measureText(cut).width <= room) return cut;
  }
  return text.slice(0, 1);
}
