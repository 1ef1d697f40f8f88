// Analysis figures, one at a time.
import type { Controller } from "../controller";
import { Empty, Search } from "./components";
import { FigureBox } from "./figure_box";

const FINISHED = new Set(["complete", "stopped", "failed", "lost"]);

/** As `COLOURED` in `plots/colouring.py`. */
const COLOURED = new Set(["parallel", "slice", "pareto", "best_by_trial", "timeline"]);
const OF_TRIALS = new Set([...COLOURED, "convergence", "throughput", "importance", "contour", "rank", "edf"]);

export function Analysis({ controller }: { controller: Controller }) {
  const { run, view } = controller.state;
  if (!run) return <Empty title="Reading the run …" />;
  const names = run.figures;
  if (!names.length) return <Empty title="Nothing to analyse yet" />;
  const name = names.includes(view.figure) ? view.figure : names[0];
  const filter = view.table.text;
  const colour = run.params.includes(view.figureColour) ? view.figureColour : "";
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
        {COLOURED.has(name) && run.params.length ? (
          <select
            aria-label="Colour"
            value={colour}
            onChange={(event) => controller.show({ figureColour: event.currentTarget.value })}
          >
            <option value="">{name === "parallel" ? "coloured by result" : "one colour"}</option>
            {run.params.map((one) => (
              <option key={one} value={one}>
                coloured by {one}
              </option>
            ))}
          </select>
        ) : null}
        {OF_TRIALS.has(name) ? (
          <Search
            value={filter}
            label="Filter trials"
            title="Words, or comparisons such as lr < 0.01; as in the table of trials"
            onInput={(text) => controller.filterTrials(text)}
          />
        ) : null}
        {name === "parallel" ? (
          <span class="workbench-hint">Drag along an axis to filter trials; click the axis to show all.</span>
        ) : null}
      </div>
      <FigureBox
        key={`${run.run_id}/${name}`}
        controller={controller}
        runId={run.run_id}
        name={name}
        live={!FINISHED.has(run.state)}
        filter={OF_TRIALS.has(name) ? filter : ""}
        colour={COLOURED.has(name) ? colour : ""}
        chosen={run.chosen_by_hand?.trial}
      />
    </section>
  );
}
