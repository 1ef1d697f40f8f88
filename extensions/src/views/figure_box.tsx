// A figure that was built in Python, fetched from the server and drawn by plotly.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Controller } from "../controller";
import { loadPlotly, themed, trialOf, type Figure, type PlotlyElement } from "../figures";
import { wordsOf } from "./actions";
import { Empty } from "./components";

const FETCH_AGAIN_MS = 15_000;
/** The server holds a request for a while before it says that a figure is still drawn. */
const ASK_AGAIN_MS = 1_000;
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
  /** The parameter that decides the colours; empty for none. */
  colour?: string;
  /** The trial that was chosen by hand, which it marks. */
  chosen?: number | null;
}

export function FigureBox({ controller, runId, name, live, colour = "", chosen = null }: FigureBoxProps) {
  const element = useRef<PlotlyElement & HTMLDivElement>(null);
  const [figure, setFigure] = useState<Figure | null>(null);
  const [problem, setProblem] = useState("");
  const [drawn, setDrawn] = useState(false);
  const [attempt, setAttempt] = useState(0);
  const [startedMs, setStartedMs] = useState(() => Date.now());
  const { theme } = controller;

  useEffect(() => {
    let gone = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const query = colour ? `?${new URLSearchParams({ colour })}` : "";
    const path = `runs/${encodeURIComponent(runId)}/figures/${encodeURIComponent(name)}${query}`;
    const again = (delay_ms: number) => {
      if (!gone) timer = setTimeout(() => void fetchFigure(), delay_ms);
    };
    const fetchFigure = async () => {
      if (controller.hidden) return again(FETCH_AGAIN_MS);
      try {
        const found = await controller.json<Figure | null>(path);
        if (gone) return;
        setProblem("");
        if (found === null) return again(ASK_AGAIN_MS);
        setFigure(found);
        if (live) again(FETCH_AGAIN_MS);
      } catch (error) {
        if (!gone) setProblem(wordsOf(error));
      }
    };
    setStartedMs(Date.now());
    void fetchFigure();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [runId, name, live, colour, chosen, attempt]);

  useEffect(() => {
    const target = element.current;
    if (!figure || !target) return;
    let gone = false;
    loadPlotly(controller.host.baseUrl).then(
      (plotly) => {
        if (gone) return;
        const { data, layout } = themed(figure, theme, `${runId}/${name}`);
        void plotly.react(target, data, layout, CONFIG).then(() => {
          target.removeAllListeners?.("plotly_click");
          target.on?.("plotly_click", ({ points }) => {
            const trial = trialOf(points);
            if (trial !== null) controller.chooseTrial(trial);
          });
        });
        setDrawn(true);
      },
      (error: unknown) => setProblem(wordsOf(error)),
    );
    return () => {
      gone = true;
    };
  }, [figure, theme]);

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
      {problem ? (
        <p class="workbench-notice">
          {problem}{" "}
          <button
            type="button"
            onClick={() => {
              setProblem("");
              setAttempt(attempt + 1);
            }}
          >
            Try again
          </button>
        </p>
      ) : null}
      {drawn || problem ? null : <Drawing startedMs={startedMs} />}
      <div class="workbench-figure-box">
        <div class="workbench-figure" ref={element} dir="ltr" role="figure" aria-label={titleOf(figure) ?? name} />
      </div>
    </>
  );
}

/** How long it has taken so far, because a busy machine may need minutes. */
function Drawing({ startedMs }: { startedMs: number }) {
  const [nowMs, setNowMs] = useState(startedMs);
  useEffect(() => {
    const timer = setInterval(() => setNowMs(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const passed_s = Math.round((nowMs - startedMs) / 1000);
  return <Empty title={`Drawing the figure …${passed_s > 2 ? ` ${passed_s} s` : ""}`} />;
}

function titleOf(figure: Figure | null): string | null {
  const title = figure?.layout.title as { text?: string; subtitle?: { text?: string } } | undefined;
  if (!title?.text) return null;
  return title.subtitle?.text ? `${title.text}: ${title.subtitle.text}` : title.text;
}
