// Lines, bands and names on a canvas, in the pixels of the device.
import type { Range } from "./extent";
import type { Band, Drawing, Line, Span } from "./drawing";
import type { Theme } from "./theme";

/** A piece of canvas and what part of the plane it shows. */
export interface Canvas {
  context: CanvasRenderingContext2D;
  left: number;
  top: number;
  width: number;
  height: number;
  /** Device pixels in a CSS pixel. */
  ratio: number;
  x: Range;
  y: Range;
  logarithmic: boolean;
  xLogarithmic: boolean;
}

type ToPixel = (value: number) => number;

const DASHES = [5, 4];
const DOTS = [2, 2.5];
const STRIPE = 7;
const NAME_HEIGHT = 12;
const NAME_WIDTH = 34;

export function across({ left, width, x, xLogarithmic }: Canvas): ToPixel {
  if (!xLogarithmic) {
    const scale = width / (x[1] - x[0]);
    return (value) => left + (value - x[0]) * scale;
  }
  const low = Math.log(x[0]);
  const scale = width / (Math.log(x[1]) - low);
  return (value) => (value > 0 ? left + (Math.log(value) - low) * scale : NaN);
}

export function down({ top, height, y, logarithmic }: Canvas): ToPixel {
  if (!logarithmic) {
    const scale = height / (y[1] - y[0]);
    return (value) => top + height - (value - y[0]) * scale;
  }
  const low = Math.log(y[0]);
  const scale = height / (Math.log(y[1]) - low);
  return (value) => (value > 0 ? top + height - (Math.log(value) - low) * scale : NaN);
}

export function drawLine(canvas: Canvas, line: Line): void {
  const { context, ratio } = canvas;
  const toX = across(canvas);
  const toY = down(canvas);
  const { curve } = line;
  context.globalAlpha = line.opacity;
  context.strokeStyle = line.colour;
  context.lineWidth = line.width * ratio;
  context.lineJoin = "round";
  const [index, count] = line.stripe ?? [0, 1];
  const stripes = count > 1 ? [STRIPE, STRIPE * (count - 1)] : [];
  const dashes = line.dashed ? DASHES : line.dotted ? DOTS : stripes;
  context.setLineDash(dashes.map((dash) => dash * ratio));
  context.lineDashOffset = -STRIPE * index * ratio;
  context.beginPath();
  let drawing = false;
  let last = NaN;
  let before = NaN;
  for (let at = 0; at < curve.length; at += 1) {
    const y = toY(curve.y[at]);
    if (!Number.isFinite(y)) {
      drawing = false;
      continue;
    }
    const x = toX(curve.x[at]);
    if (drawing && line.stepped) context.lineTo(x, last);
    if (drawing) context.lineTo(x, y);
    else context.moveTo(x, y);
    drawing = true;
    before = last;
    last = y;
  }
  context.stroke();
  if (line.stepped && drawing && before !== last) drawRise(canvas, toX(curve.x[curve.length - 1]), before, last);
  if (curve.length === 1) drawDot(canvas, line, toX(curve.x[0]), toY(curve.y[0]));
  context.setLineDash([]);
  context.lineDashOffset = 0;
  context.globalAlpha = 1;
}

/** The last rise of a stair is solid: a gap between dashes would hide where the stair ends. */
function drawRise({ context }: Canvas, x: number, from: number, to: number): void {
  if (!Number.isFinite(from)) return;
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x, from);
  context.lineTo(x, to);
  context.stroke();
}

function drawDot({ context, ratio }: Canvas, line: Line, x: number, y: number): void {
  if (!Number.isFinite(y)) return;
  context.fillStyle = line.colour;
  context.beginPath();
  context.arc(x, y, Math.max(2, line.width * 1.2) * ratio, 0, 2 * Math.PI);
  context.fill();
}

export function drawBand(canvas: Canvas, band: Band, theme: Theme): void {
  const { context, ratio } = canvas;
  const toX = across(canvas);
  const toY = down(canvas);
  context.beginPath();
  for (let index = 0; index < band.x.length; index += 1) context.lineTo(toX(band.x[index]), toY(band.high[index]));
  for (let index = band.x.length - 1; index >= 0; index -= 1) context.lineTo(toX(band.x[index]), toY(band.low[index]));
  context.closePath();
  context.fillStyle = theme.muted;
  context.globalAlpha = 0.13;
  context.fill();
  context.beginPath();
  for (let index = 0; index < band.x.length; index += 1) context.lineTo(toX(band.x[index]), toY(band.middle[index]));
  context.strokeStyle = theme.muted;
  context.globalAlpha = 0.55;
  context.lineWidth = 1.2 * ratio;
  context.setLineDash([2 * ratio, 3 * ratio]);
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
}

const MAX_LANE_HEIGHT = 16;
/** Of the height that bars may take up, so that lines above them stay readable. */
const SPANS_SHARE = 0.45;

/** Top and height of a lane, in the pixels of the canvas. */
export function laneOf({ top, height, ratio }: Canvas, lane: number, numLanes: number): [top: number, height: number] {
  const each = Math.min(MAX_LANE_HEIGHT * ratio, (height * SPANS_SHARE) / Math.max(1, numLanes));
  return [top + height - (lane + 1) * each, each];
}

export function drawSpans(canvas: Canvas, { bars, numLanes }: NonNullable<Drawing["spans"]>, theme: Theme): void {
  const { context, ratio } = canvas;
  const toX = across(canvas);
  context.font = `${10 * ratio}px system-ui, sans-serif`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  for (const bar of bars) {
    const [top, height] = laneOf(canvas, bar.lane, numLanes);
    const left = Math.max(toX(bar.from), canvas.left);
    const width = Math.max(ratio, Math.min(toX(bar.to), canvas.left + canvas.width) - left);
    const gap = height > 4 * ratio ? ratio : 0;
    context.globalAlpha = 0.32;
    context.fillStyle = bar.colour;
    context.fillRect(left, top + gap, width - gap, height - gap);
    context.globalAlpha = 1;
    context.fillStyle = theme.ink;
    const hasRoom = height >= 11 * ratio && context.measureText(bar.name).width + 4 * ratio < width;
    if (hasRoom) context.fillText(bar.name, left + 2 * ratio, top + height / 2 + gap);
  }
}

/** The bar at a place in the pixels of the canvas. */
export function spanAt(canvas: Canvas, { bars, numLanes }: NonNullable<Drawing["spans"]>, x: number, y: number) {
  const toX = across(canvas);
  return bars.find((bar: Span) => {
    const [top, height] = laneOf(canvas, bar.lane, numLanes);
    return y >= top && y < top + height && x >= toX(bar.from) - 1 && x <= toX(bar.to) + 1;
  });
}

export function drawTarget(canvas: Canvas, target: number, theme: Theme): void {
  const { context, ratio, left, top, width } = canvas;
  const y = Math.round(down(canvas)(target)) + 0.5;
  context.strokeStyle = theme.ink;
  context.globalAlpha = 0.65;
  context.lineWidth = ratio;
  context.setLineDash([8 * ratio, 4 * ratio]);
  context.beginPath();
  context.moveTo(left, y);
  context.lineTo(left + width, y);
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 0.85;
  context.fillStyle = theme.ink;
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textAlign = "left";
  const isLow = y > top + 16 * ratio;
  context.textBaseline = isLow ? "bottom" : "top";
  context.fillText("target", left + 4 * ratio, isLow ? y - 2 * ratio : y + 3 * ratio);
  context.globalAlpha = 1;
}

/** Names at the ends of lines, pushed apart where they would cover each other: beside the plot down, else aside. */
export function drawNames(canvas: Canvas, lines: Line[], theme: Theme): void {
  const { context, ratio, left, top, width, height } = canvas;
  const toX = across(canvas);
  const toY = down(canvas);
  const edge = left + width;
  const names = lines
    .map((line) => ({ line, end: endOf(line, canvas.x[1]) }))
    .map(({ line, end }) => ({
      line,
      x: end < 0 ? NaN : toX(line.curve.x[end]),
      y: end < 0 ? NaN : toY(line.curve.y[end]),
    }))
    .filter(({ x, y }) => x >= left && y >= top && y <= top + height)
    .sort((one, other) => one.y - other.y);
  context.font = `600 ${11 * ratio}px system-ui, sans-serif`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  let lowest = -Infinity;
  let before = { x: NaN, y: NaN, right: NaN };
  for (const { line, x, y } of names) {
    const beside = x > edge - NAME_WIDTH * ratio;
    const at = beside ? Math.max(y, lowest + NAME_HEIGHT * ratio) : y;
    if (beside) lowest = at;
    const follows = !beside && Math.abs(before.x - x) < ratio && Math.abs(before.y - y) < ratio;
    const from = follows ? before.right : beside ? edge : x;
    const name = line.name ?? "";
    // Lines go through the names of those that end earlier.
    context.strokeStyle = theme.surface;
    context.lineWidth = 3 * ratio;
    context.strokeText(name, from + 5 * ratio, at);
    context.fillStyle = line.colour || theme.ink;
    context.fillText(name, from + 5 * ratio, at);
    before = { x, y, right: from + 5 * ratio + context.measureText(name).width };
  }
}

/** Index of the last point of a line that is on the screen; -1 where there is none. */
function endOf({ curve }: Line, x: number): number {
  for (let index = Math.min(curve.before(x), curve.length - 1); index >= 0; index -= 1) {
    if (Number.isFinite(curve.y[index])) return index;
  }
  return -1;
}
