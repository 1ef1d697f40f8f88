// Many lines in one chart. uPlot draws axes and keeps scales; the lines are drawn here, one path each, because
// every line has its own x and there may be a thousand of them.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Dot, Drawing, Line, Span } from "./drawing";
import { formatDuration, formatNumber, formatPercent } from "./format";
import { drawDot, drawDotNames, drawHeat, drawLimit, drawUprights } from "./draw_dots";
import { FONT, namedTicks, ticksOf, widthOf } from "./ticks";
import { extentOf, type Extent } from "./extent";
import { withStripes } from "./equal_lines";
import { titledCopy } from "./titled_copy";
import { drawBand, drawLine, drawNames, drawSpans, drawTarget, spanAt, type Canvas } from "./draw_lines";
import { followBrush } from "./brushing";
import type { Range } from "./brush";
import type { Theme } from "./theme";

export interface PlotEvents {
  onChoose(key: string, add: boolean): void;
  onZoom(zoomed: boolean): void;
  /** A range was dragged on an upright axis, or a brush was clicked away. */
  onBrush?(axis: number, range: Range | null): void;
}

const NEAR_PX = 18;
/** How close lines are that are named together. */
const SAME_PX = 1;
const MAX_NAMED = 6;

interface Near {
  line: Line;
  index: number;
}

const UPRIGHTS_TOP_PX = 34;
/** Room for the names at the ends of lines. */
const NAMES_PX = 38;

export class LinesPlot {
  private plot: uPlot | null = null;
  private drawing: Drawing | null = null;
  private shape = "";
  private extent: Extent = { x: [0, 1], y: [0, 1] };
  private zoom: Extent | null = null;
  /** Where the mouse is over the plot. */
  private mouse: [number, number] | null = null;
  private pressedAt: [number, number] = [0, 0];
  private readonly observer: ResizeObserver;
  private readonly overlay = document.createElement("canvas");
  private readonly hint = document.createElement("div");

  constructor(
    private readonly element: HTMLElement,
    private theme: Theme,
    private readonly events: PlotEvents,
  ) {
    this.overlay.className = "workbench-plot-overlay";
    this.hint.className = "workbench-plot-hint";
    this.hint.hidden = true;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(element);
  }

  draw(drawing: Drawing, theme: Theme): void {
    const hadNames = this.hasNames;
    this.drawing = { ...drawing, lines: withStripes(drawing.lines) };
    this.extent = extentOf(drawing);
    const shape = JSON.stringify([
      drawing.xTitle,
      drawing.yName,
      drawing.xKind,
      drawing.yKind,
      drawing.logarithmic,
      drawing.xLogarithmic,
      drawing.xTicks,
      drawing.yTicks,
      drawing.uprights?.length,
      theme,
    ]);
    this.theme = theme;
    if (shape !== this.shape) {
      this.shape = shape;
      this.build();
    } else {
      this.refresh();
      if (hadNames !== this.hasNames) this.plot?.redraw(false, true);
    }
  }

  private get hasNames(): boolean {
    return this.drawing?.lines.some(({ name }) => name) ?? false;
  }

  unzoom(): void {
    this.zoom = null;
    this.events.onZoom(false);
    this.refresh();
  }

  /** The chart as it is drawn, below a title. */
  image(title: string): Promise<Blob | null> {
    const { plot } = this;
    if (!plot) return Promise.resolve(null);
    const copy = titledCopy(plot.ctx.canvas, title, this.theme, uPlot.pxRatio);
    return new Promise((resolve) => copy.toBlob(resolve, "image/png"));
  }

  destroy(): void {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  private refresh(): void {
    this.plot?.setData(this.corners());
  }

  private corners(): uPlot.AlignedData {
    const { x, y } = this.zoom ?? this.extent;
    return [x, y];
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    if (!this.plot) this.build();
    else if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  private build(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!this.drawing || !width || !height) return;
    this.mouse = null;
    this.plot?.destroy();
    this.zoom = null;
    this.events.onZoom(false);
    this.plot = new uPlot(this.options(this.drawing, width, height), this.corners(), this.element);
    const { over } = this.plot;
    over.append(this.overlay, this.hint);
    over.addEventListener("mousemove", (event) => this.moved([event.offsetX, event.offsetY]));
    over.addEventListener("mouseleave", () => this.moved(null));
    over.addEventListener("mousedown", (event) => (this.pressedAt = [event.clientX, event.clientY]));
    over.addEventListener("click", (event) => this.clicked(event));
    if (this.drawing.uprights && this.events.onBrush) {
      const { onBrush } = this.events;
      followBrush(over, {
        placeAt: (x, y) => ({ across: this.plot?.posToVal(x, "x") ?? NaN, place: this.plot?.posToVal(y, "y") ?? NaN }),
        pixelOf: (axis) => this.plot?.valToPos(axis, "x") ?? NaN,
        onBrush: (axis, range) => axis < (this.drawing?.uprights?.length ?? 0) && onBrush(axis, range),
      });
    }
  }

  private options(drawing: Drawing, width: number, height: number): uPlot.Options {
    const { theme } = this;
    const axis = {
      stroke: theme.muted,
      grid: { stroke: theme.grid, width: 1 },
      ticks: { stroke: theme.grid, width: 1, size: 4 },
      font: FONT,
      labelFont: FONT,
    };
    const isUpright = drawing.uprights !== undefined;
    return {
      width,
      height,
      // Lines get names while a run is under way.
      padding: isUpright ? [UPRIGHTS_TOP_PX, 12, 10, 0] : [10, () => (this.hasNames ? NAMES_PX : 14), 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, distr: drawing.xLogarithmic ? 3 : 1, range: () => (this.zoom ?? this.extent).x },
        y: { distr: drawing.logarithmic ? 3 : 1, range: () => (this.zoom ?? this.extent).y },
      },
      axes: [
        {
          ...axis,
          show: !isUpright,
          label: drawing.xTitle,
          labelSize: 16,
          size: 28,
          gap: 3,
          ...(drawing.xTicks ? namedTicks(drawing.xTicks, "x") : ticksOf(drawing.xKind)),
        },
        {
          ...axis,
          show: !isUpright,
          size: (_, labels) => Math.max(52, 14 + Math.max(0, ...(labels ?? []).map(widthOf))),
          gap: 4,
          values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : writeY(drawing, tick))),
          ...(drawing.yTicks ? namedTicks(drawing.yTicks, "y") : {}),
        },
      ],
      series: [{}, { paths: () => null, points: { show: false } }],
      cursor: {
        points: { show: false },
        drag: { x: !isUpright, y: !isUpright, uni: 24, setScale: false },
        show: !isUpright,
        bind: { dblclick: () => () => (this.unzoom(), null) },
      },
      hooks: { draw: [(plot) => this.drawCanvas(plot)], setSelect: [(plot) => this.selected(plot)] },
    };
  }

  private canvas(plot: uPlot, context: CanvasRenderingContext2D, origin: { left: number; top: number }): Canvas {
    const { x, y } = this.zoom ?? this.extent;
    const { width, height } = plot.bbox;
    return {
      context,
      ...origin,
      width,
      height,
      ratio: uPlot.pxRatio,
      x,
      y,
      logarithmic: this.drawing?.logarithmic ?? false,
      xLogarithmic: this.drawing?.xLogarithmic ?? false,
    };
  }

  private drawCanvas(plot: uPlot): void {
    const { drawing, theme } = this;
    if (!drawing) return;
    const { left, top, width, height } = plot.bbox;
    const canvas = this.canvas(plot, plot.ctx, { left, top });
    plot.ctx.save();
    plot.ctx.save();
    plot.ctx.beginPath();
    plot.ctx.rect(left, top, width, height);
    plot.ctx.clip();
    if (drawing.heat) drawHeat(canvas, drawing.heat);
    if (drawing.spans) drawSpans(canvas, drawing.spans, theme);
    if (drawing.band) drawBand(canvas, drawing.band, theme);
    for (const line of drawing.lines) drawLine(canvas, line);
    if (drawing.target !== null) drawTarget(canvas, drawing.target, theme);
    for (const limit of drawing.limits ?? []) drawLimit(canvas, limit, theme);
    for (const dot of drawing.dots ?? []) drawDot(canvas, dot);
    plot.ctx.restore();
    if (drawing.uprights) drawUprights(canvas, drawing.uprights, theme);
    const named = (drawing.dots ?? []).filter(({ name }) => name);
    if (named.length) drawDotNames(canvas, named, theme);
    drawNames(
      canvas,
      drawing.lines.filter((line) => line.name),
      theme,
    );
    plot.ctx.restore();
    // Lines move under a mouse that stays where it is.
    this.moved(this.mouse);
  }

  private selected(plot: uPlot): void {
    const { left, top, width, height } = plot.select;
    if (width < 4 && height < 4) return;
    const at = (position: number, scale: string) => plot.posToVal(position, scale);
    this.zoom = {
      x: width < 4 ? (this.zoom ?? this.extent).x : [at(left, "x"), at(left + width, "x")],
      y: height < 4 ? (this.zoom ?? this.extent).y : [at(top + height, "y"), at(top, "y")],
    };
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.events.onZoom(true);
    this.refresh();
  }

  private clicked(event: MouseEvent): void {
    const [x, y] = this.pressedAt;
    if (Math.hypot(event.clientX - x, event.clientY - y) > 3) return;
    const place: [number, number] = [event.offsetX, event.offsetY];
    const key = this.dotAt(...place)?.key ?? this.near(...place)?.line.key ?? this.spanAt(...place)?.key;
    if (key !== undefined) this.events.onChoose(key, event.shiftKey || event.ctrlKey || event.metaKey);
  }

  /** The dot that is closest to a place on the screen; of several there, the one on top. */
  private dotAt(left: number, top: number): Dot | undefined {
    const { plot, drawing } = this;
    if (!plot || !drawing?.dots) return undefined;
    let best: Dot | undefined;
    let nearest = NEAR_PX;
    for (const dot of drawing.dots) {
      const [x, y] = [plot.valToPos(dot.x, "x") - left, plot.valToPos(dot.y, "y") - top];
      const distance = Math.hypot(x, y);
      if (distance <= nearest) {
        nearest = distance;
        best = dot;
      }
    }
    return best;
  }

  /** The line that comes closest to a place on the screen, and its point there. */
  private near(left: number, top: number): Near | null {
    const { plot, drawing } = this;
    if (!plot || !drawing) return null;
    const x = plot.posToVal(left, "x");
    let best: Near | null = null;
    let nearest = NEAR_PX;
    for (const line of drawing.lines) {
      if (line.silent) continue;
      const before = line.curve.before(x);
      for (const index of [before, before + 1]) {
        if (index < 0 || index >= line.curve.length) continue;
        const across = plot.valToPos(line.curve.x[index], "x") - left;
        const distance = Math.hypot(across / 3, this.heightAt(plot, line, before, x, index) - top);
        if (distance < nearest) {
          nearest = distance;
          best = { line, index };
        }
      }
    }
    return best;
  }

  /** Where a line is at x on the screen; between two points, on the straight line that is drawn. */
  private heightAt(plot: uPlot, { curve }: Line, before: number, x: number, index: number): number {
    const after = before + 1;
    const inside = before >= 0 && after < curve.length;
    const [y0, y1] = [curve.y[before], curve.y[after]];
    if (!inside || Number.isNaN(y0) || Number.isNaN(y1)) return plot.valToPos(curve.y[index], "y");
    const part = (x - curve.x[before]) / (curve.x[after] - curve.x[before] || 1);
    const [top0, top1] = [plot.valToPos(y0, "y"), plot.valToPos(y1, "y")];
    return top0 + (top1 - top0) * part;
  }

  private moved(mouse: [number, number] | null): void {
    this.mouse = mouse;
    const dot = mouse ? this.dotAt(...mouse) : undefined;
    const found = mouse && !dot ? this.near(...mouse) : null;
    const span = mouse && !dot && !found ? this.spanAt(...mouse) : undefined;
    this.hint.hidden = !found && !span && !dot;
    this.element.classList.toggle("workbench-plot-pointing", !this.hint.hidden);
    this.drawHighlight(found?.line ?? null, dot);
    if (dot && this.plot) this.placeHint(dot.label, this.plot.valToPos(dot.x, "x"), this.plot.valToPos(dot.y, "y"));
    else if (found && this.drawing?.uprights && mouse) this.placeHint(found.line.label, ...mouse);
    else if (found) this.showHint(found.line, found.index);
    else if (mouse && span) this.placeHint(span.label, ...mouse);
  }

  private showHint(line: Line, index: number): void {
    const { plot, drawing } = this;
    if (!plot || !drawing) return;
    const x = line.curve.x[index];
    const y = line.curve.y[index];
    const at = drawing.xKind === "seconds" ? formatDuration(x) : `${drawing.xTitle} ${formatNumber(x)}`;
    const text = `${this.labelsAt(plot, drawing.lines, x, y).join("\n")}\n${drawing.yName} ${writeY(drawing, y)} at ${at}`;
    this.placeHint(text, plot.valToPos(x, "x"), plot.valToPos(y, "y"));
  }

  /** What lies at a point: all lines through it, as the one that was drawn last hides the others. */
  private labelsAt(plot: uPlot, lines: Line[], x: number, y: number): string[] {
    const top = plot.valToPos(y, "y");
    const labels = lines
      .filter(({ silent, stepped, curve }) => {
        const index = curve.before(x);
        const isThere = stepped ? index >= 0 && x <= curve.x[curve.length - 1] : curve.x[index] === x;
        return !silent && isThere && Math.abs(plot.valToPos(curve.y[index], "y") - top) < SAME_PX;
      })
      .map(({ label }) => label);
    const others = labels.length - MAX_NAMED;
    return others > 0 ? [...labels.slice(0, MAX_NAMED), `and ${others} more`] : labels;
  }

  private placeHint(text: string, left: number, top: number): void {
    const { plot } = this;
    if (!plot) return;
    this.hint.textContent = text;
    const overWidth = plot.over.clientWidth;
    const toTheLeft = left > overWidth / 2;
    this.hint.style.left = toTheLeft ? "" : `${left + 12}px`;
    this.hint.style.right = toTheLeft ? `${overWidth - left + 12}px` : "";
    const highest = plot.over.clientHeight - Math.max(44, this.hint.offsetHeight + 4);
    this.hint.style.top = `${Math.max(0, Math.min(top - 12, highest))}px`;
  }

  /** The bar at a place on the screen. */
  private spanAt(left: number, top: number): Span | undefined {
    const { plot, drawing } = this;
    if (!plot || !drawing?.spans) return undefined;
    const canvas = this.canvas(plot, plot.ctx, { left: 0, top: 0 });
    return spanAt(canvas, drawing.spans, left * uPlot.pxRatio, top * uPlot.pxRatio);
  }

  private drawHighlight(pointed: Line | null, dot: Dot | undefined): void {
    const { plot, overlay } = this;
    const context = overlay.getContext("2d");
    if (!plot || !context) return;
    overlay.width = plot.bbox.width;
    overlay.height = plot.bbox.height;
    const canvas = this.canvas(plot, context, { left: 0, top: 0 });
    if (dot) drawDot(canvas, { ...dot, colour: this.theme.ink, size: dot.size + 2.5, opacity: 1, shape: "ring" });
    if (!pointed) return;
    const solid = { dashed: false, stripe: undefined };
    drawLine(canvas, { ...pointed, colour: this.theme.surface, width: 6, opacity: 0.9, ...solid });
    drawLine(canvas, { ...pointed, width: 2.6, opacity: 1, stripe: undefined });
  }
}

function writeY({ yKind }: Drawing, value: number): string {
  return yKind === "percent" ? formatPercent(value) : formatNumber(value);
}
