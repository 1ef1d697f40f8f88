// A chart of lines as a component.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Range } from "../brush";
import type { Drawing } from "../drawing";
import { LinesPlot } from "../plot";
import type { Theme } from "../theme";

interface PlotBoxProps {
  drawing: Drawing;
  theme: Theme;
  label: string;
  onChoose(key: string, add: boolean): void;
  /** A range was dragged on an upright axis, or a brush was clicked away. */
  onBrush?(axis: number, range: Range | null): void;
  /** Is given the plot, whose image can be saved. */
  plotRef?: { current: LinesPlot | undefined };
}

export function PlotBox({ drawing, theme, label, onChoose, onBrush, plotRef }: PlotBoxProps) {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<LinesPlot>();
  const choose = useRef(onChoose);
  const [zoomed, setZoomed] = useState(false);
  const brush = useRef(onBrush);
  choose.current = onChoose;
  brush.current = onBrush;
  useEffect(() => () => plot.current?.destroy(), []);
  useLayoutEffect(() => {
    if (!element.current) return;
    plot.current ??= new LinesPlot(element.current, theme, {
      onChoose: (key, add) => choose.current(key, add),
      onZoom: setZoomed,
      onBrush: (axis, range) => brush.current?.(axis, range),
    });
    plot.current.draw(drawing, theme);
    if (plotRef) plotRef.current = plot.current;
  }, [drawing, theme]);
  return (
    <div class="workbench-plot">
      <div class="workbench-plot-canvas" ref={element} role="img" aria-label={label} dir="ltr" />
      {zoomed ? (
        <button type="button" class="workbench-plot-unzoom" onClick={() => plot.current?.unzoom()}>
          Reset zoom
        </button>
      ) : null}
    </div>
  );
}
