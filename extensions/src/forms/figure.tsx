// A figure that was built in Python, drawn by the plotly.js that the server of the page has.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { loadPlotly, themed, type Figure } from "../figures";
import { findHost } from "../run_in_cell";
import { readTheme } from "../theme";

export function FigureBox({ figure, title, themeName }: { figure: Figure; title: string; themeName: string }) {
  const element = useRef<HTMLDivElement>(null);
  const [problem, setProblem] = useState("");
  const host = useMemo(findHost, []);
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    let isGone = false;
    if (!host && !window.Plotly) {
      setProblem("Figures need a Jupyter server with the workbench extension.");
      return;
    }
    loadPlotly(host?.baseUrl ?? "/").then(
      (plotly) => {
        if (isGone) return;
        const { data, layout } = themed(figure, readTheme(target.closest<HTMLElement>(".workbench") ?? target), "form");
        void plotly.react(target, data, layout, { responsive: true, displaylogo: false });
      },
      () => setProblem("Figures need a Jupyter server with the workbench extension."),
    );
    return () => {
      isGone = true;
    };
  }, [figure, themeName]);
  useEffect(() => () => void (element.current && window.Plotly?.purge(element.current)), []);
  return (
    <>
      {problem ? <p class="workbench-notice">{problem}</p> : null}
      <div class={problem ? undefined : "workbench-figure"} ref={element} dir="ltr" role="figure" aria-label={title} />
    </>
  );
}
