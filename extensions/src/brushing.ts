// Brushes on upright axes: a range is dragged along an axis with a pointer, or clicked away.
import type { Range } from "./brush";

/** How close to an axis a drag must begin, in axes. */
const REACH = 0.18;
/** Less is a click, which takes a brush away. */
const MIN_DRAG_PX = 6;

export interface BrushedPlot {
  /** From pixels within the plot to a place among the axes and on them. */
  placeAt(x: number, y: number): { across: number; place: number };
  /** Where an axis stands, in pixels. */
  pixelOf(axis: number): number;
  onBrush(axis: number, range: Range | null): void;
}

/** Follows the pointer over a plot, for as long as that exists. */
export function followBrush(over: HTMLElement, plot: BrushedPlot): void {
  let begin: { axis: number; place: number; y: number; mark: HTMLElement } | null = null;
  const locate = (event: PointerEvent) => {
    const box = over.getBoundingClientRect();
    const y = event.clientY - box.top;
    return { ...plot.placeAt(event.clientX - box.left, y), y };
  };
  over.addEventListener("pointerdown", (event) => {
    const { across, place, y } = locate(event);
    const axis = Math.round(across);
    if (event.button !== 0 || Math.abs(across - axis) > REACH) return;
    const mark = document.createElement("div");
    mark.className = "workbench-brush";
    mark.style.left = `${plot.pixelOf(axis) - 7}px`;
    begin = { axis, place, y, mark };
    over.setPointerCapture?.(event.pointerId);
  });
  over.addEventListener("pointermove", (event) => {
    if (!begin) return;
    const { y } = locate(event);
    if (Math.abs(y - begin.y) < MIN_DRAG_PX) return;
    if (!begin.mark.isConnected) over.append(begin.mark);
    begin.mark.style.top = `${Math.min(y, begin.y)}px`;
    begin.mark.style.height = `${Math.abs(y - begin.y)}px`;
  });
  over.addEventListener("pointerup", (event) => {
    if (!begin) return;
    const { axis, place, y, mark } = begin;
    const end = locate(event);
    begin = null;
    mark.remove();
    if (Math.abs(end.y - y) < MIN_DRAG_PX) plot.onBrush(axis, null);
    else plot.onBrush(axis, [Math.min(place, end.place), Math.max(place, end.place)]);
  });
}
