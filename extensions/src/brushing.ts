// Brushes on the axes of the parallel coordinates: dragged with a pointer, and drawn where the filter has a range.
import { isBrushable, rangeIn, type BrushedAxis, type Range } from "./brush";
import type { Figure, PlotlyElement } from "./figures";

/** How close to an axis a drag must begin, in axes. */
const REACH = 0.18;
/** Less is a click, which opens a trial or takes a brush away. */
const MIN_DRAG_PX = 6;
const WIDTH = 0.05;

export function axesOf(figure: Figure): BrushedAxis[] {
  const meta = figure.layout.meta as { axes?: BrushedAxis[] } | undefined;
  return meta?.axes ?? [];
}

/** The figure with the ranges that a filter leaves on its axes. */
export function withBrushes(figure: Figure, filter: string, colour: string): Figure {
  const shapes = axesOf(figure).flatMap((axis, at) => {
    const range = rangeIn(filter, axis);
    if (!range) return [];
    const [y0, y1] = range;
    return {
      type: "rect",
      x0: at - WIDTH,
      x1: at + WIDTH,
      y0,
      y1,
      fillcolor: colour,
      opacity: 0.3,
      line: { width: 0 },
    };
  });
  const given = (figure.layout.shapes as unknown[] | undefined) ?? [];
  return { ...figure, layout: { ...figure.layout, dragmode: false, shapes: [...given, ...shapes] } };
}

/** Calls back with the range that was dragged on an axis, or null where a brush was clicked; returns what ends that. */
export function followBrushes(
  element: PlotlyElement,
  axes: () => BrushedAxis[],
  onBrush: (axis: BrushedAxis, range: Range | null) => void,
): () => void {
  let begin: { axis: BrushedAxis; place: number; y: number; mark: HTMLElement } | null = null;
  const locate = (event: PointerEvent) => {
    const { xaxis, yaxis } = element._fullLayout ?? {};
    if (!xaxis || !yaxis) return null;
    const box = element.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const columnPx = (column: number) => xaxis._offset + xaxis.d2p(column);
    return { across: xaxis.p2d(x - xaxis._offset), place: yaxis.p2d(y - yaxis._offset), y, columnPx };
  };
  const down = (event: PointerEvent) => {
    const found = locate(event);
    delete element.dataset.isBrushed;
    if (!found || event.button !== 0) return;
    const at = Math.round(found.across);
    const axis = axes()[at];
    if (!axis || Math.abs(found.across - at) > REACH || !isBrushable(axis)) return;
    const mark = document.createElement("div");
    mark.className = "workbench-brush";
    mark.style.insetInlineStart = `${found.columnPx(at) - 7}px`;
    begin = { axis, place: found.place, y: found.y, mark };
  };
  const move = (event: PointerEvent) => {
    const found = begin && locate(event);
    if (!begin || !found || Math.abs(found.y - begin.y) < MIN_DRAG_PX) return;
    if (!begin.mark.isConnected) element.append(begin.mark);
    begin.mark.style.insetBlockStart = `${Math.min(found.y, begin.y)}px`;
    begin.mark.style.blockSize = `${Math.abs(found.y - begin.y)}px`;
  };
  const up = (event: PointerEvent) => {
    const found = begin && locate(event);
    if (!begin || !found) return;
    const { axis, place, y, mark } = begin;
    begin = null;
    mark.remove();
    if (Math.abs(found.y - y) < MIN_DRAG_PX) return onBrush(axis, null);
    // Plotly takes the end of a drag for a click, which would open a trial.
    element.dataset.isBrushed = "true";
    onBrush(axis, [Math.min(place, found.place), Math.max(place, found.place)]);
  };
  element.addEventListener("pointerdown", down, true);
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", up);
  return () => {
    element.removeEventListener("pointerdown", down, true);
    window.removeEventListener("pointermove", move);
    window.removeEventListener("pointerup", up);
  };
}
