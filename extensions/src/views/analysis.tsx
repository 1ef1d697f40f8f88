// Analysis figures, one at a time.
import type { Controller } from "../controller";
import { Empty } from "./components";
import { FigureBox } from "./figure_box";

const FINISHED = new Set(["complete", "stopped", "failed", "lost"]);

export function Analysis({ controller }: { controller: Controller }) {
  const { run, view } = controller.state;
  if (!run) return <Empty title="Reading the run …" />;
  const names = run.figures;
  if (!names.length) return <Empty title="Nothing to analyse yet" />;
  const name = names.includes(view.figure) ? view.figure : names[0];
  return (
    <section class="workbench-analysis" aria-label="Analysis">
      <div class="workbench-bar">
        <select
          aria-label="Figure"
          value={name}
          onChange={(event) => controller.show({ figure: event.currentTarget.value })}
        >
          {names.map((one) => (
            <option key={one} value={one}>
              {one.replaceAll("_", " ")}
            </option>
          ))}
        </select>
      </div>
      <FigureBox
        key={`${run.run_id}/${name}`}
        controller={controller}
        runId={run.run_id}
        name={name}
        live={!FINISHED.has(run.state)}
      />
    </section>
  );
}
