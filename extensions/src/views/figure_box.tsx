// A figure that was built in Python, fetched from the server and drawn by plotly.
import { useEffect, useRef, useState } from "preact/hooks";
import { withRange } from "../brush";
import { axesOf, followBrushes, withBrushes } from "../brushing";
import type { Controller } from "../controller";
import { loadPlotly, themed, trialOf, type Figure, type PlotlyElement } from "../figures";
import { wordsOf } from "./actions";
import { Empty } from "./components";

const FETCH_AGAIN_MS = 15_000;
/** Below this the names of parallel axes would stand above each other: the figure scrolls instead. */
const AXIS_PX = 130;
const CONFIG = {
  responsive: true,
  displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};

interface FigureBoxProps {
  controller: Controller;
  runId: string;
  name: string;
  live: boolean;
  /** Which trials it shows, as in the filter of the table. */
  filter?: string;
  /** The parameter that decides the colours; empty for none. */
  colour?: string;
  /** The trial that was chosen by hand, which it marks. */
  chosen?: number | null;
}

export function FigureBox({ controller, runId, name, live, filter = "", colour = "", chosen = null }: FigureBoxProps) {
  const element = useRef<PlotlyElement & HTMLDivElement>(null);
  const [figure, setFigure] = useState<Figure | null>(null);
  const [problem, setProblem] = useState("");
  const [drawn, setDrawn] = useState(false);
  const { theme } = controller;

  useEffect(() => {
    let gone = false;
    const query = new URLSearchParams({
      ...(filter.trim() ? { filter } : {}),
      ...(colour ? { colour } : {}),
    }).toString();
    const path = `runs/${encodeURIComponent(runId)}/figures/${encodeURIComponent(name)}${query ? `?${query}` : ""}`;
    const fetchFigure = async () => {
      if (controller.hidden) return;
      try {
        const found = await controller.json<Figure>(path);
        if (gone) return;
        setFigure(found);
        setProblem("");
      } catch (error) {
        if (!gone) setProblem(wordsOf(error));
      }
    };
    void fetchFigure();
    const timer = live ? setInterval(fetchFigure, FETCH_AGAIN_MS) : undefined;
    return () => {
      gone = true;
      clearInterval(timer);
    };
  }, [runId, name, live, filter, colour, chosen]);

  useEffect(() => {
    const target = element.current;
    if (!figure || !target) return;
    let gone = false;
    loadPlotly(controller.host.baseUrl).then(
      (plotly) => {
        if (gone) return;
        const shown = axesOf(figure).length ? withBrushes(figure, filter, theme.accent) : figure;
        const { data, layout } = themed(shown, theme, `${runId}/${name}`);
        void plotly.react(target, data, layout, CONFIG).then(() => {
          target.removeAllListeners?.("plotly_click");
          target.on?.("plotly_click", ({ points }) => {
            const trial = trialOf(points);
            if (trial !== null && !target.dataset.isBrushed) controller.chooseTrial(trial);
          });
        });
        setDrawn(true);
      },
      (error: unknown) => setProblem(wordsOf(error)),
    );
    return () => {
      gone = true;
    };
  }, [figure, theme, filter]);

  const axes = figure ? axesOf(figure) : [];
  const isBrushed = axes.length > 0;
  const current = useRef({ axes, filter });
  current.current = { axes, filter };
  useEffect(() => {
    if (!isBrushed || !element.current) return;
    return followBrushes(
      element.current,
      () => current.current.axes,
      (axis, range) => {
        const text = withRange(current.current.filter, axis, range);
        if (text !== current.current.filter) controller.filterTrials(text);
      },
    );
  }, [isBrushed]);

  useEffect(() => {
    const target = element.current;
    if (!drawn || !target) return;
    // Plotly notices only when the window changes, not when a trial is shown beside the figure.
    const observer = new ResizeObserver(() => window.Plotly?.Plots?.resize(target));
    observer.observe(target);
    return () => observer.disconnect();
  }, [drawn]);

  useEffect(() => () => void (element.current && window.Plotly?.purge(element.current)), []);

  return (
    <>
      {problem ? <p class="workbench-notice">{problem}</p> : null}
      {drawn || problem ? null : <Empty title="Drawing the figure …" />}
      <div class="workbench-figure-box">
        <div
          class={`workbench-figure${isBrushed ? " workbench-brushed" : ""}`}
          style={{ minInlineSize: `${axes.length * AXIS_PX}px` }}
          ref={element}
          dir="ltr"
          role="figure"
          aria-label={titleOf(figure) ?? name}
        />
      </div>
    </>
  );
}

function titleOf(figure: Figure | null): string | null {
  const title = figure?.layout.title as { text?: string; subtitle?: { text?: string } } | undefined;
  if (!title?.text) return null;
  return title.subtitle?.text ? `${title.text}: ${title.subtitle.text}` : title.text;
}
