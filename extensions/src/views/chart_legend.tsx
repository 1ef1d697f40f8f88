// What the lines of a chart mean; each entry switches its lines off and on.
import type { Controller } from "../controller";
import { BAND, BEST, drawnOf, keyOfWorkers, NO_RESULT, STAIR, workersOf } from "../chart_drawing";
import { formatCount } from "../format";
import type { ChartState } from "../state";

const NUM_CATEGORIES = 8;

export function Legend({ controller, chart }: { controller: Controller; chart: ChartState }) {
  const { update } = chart;
  const drawn = drawnOf(chart);
  const without = new Set(update.no_result);
  const isResult = (trial: number) => drawn.includes(trial) && !without.has(trial);
  const states = [...new Set(update.states.filter((_, index) => isResult(update.shown[index])))];
  // With several objectives no trial is the best of all.
  const workers = workersOf(update);
  const path = update.path ?? [];
  const best = controller.state.run?.front ? `best ${update.metric}` : "best";
  const unseen = update.shown.length - drawn.length;
  return (
    <div class="workbench-legend">
      {update.best_trial == null ? null : (
        <Entry
          controller={controller}
          name={BEST}
          look="best"
          text={`${best}: trial ${update.best_trial}${path.length ? `, through ${path.slice(0, -1).join(", ")}` : ""}`}
        />
      )}
      {chart.best ? <Entry controller={controller} name={STAIR} look="stair" text="best so far" /> : null}
      {workers.map((num, index) => (
        <Entry
          key={num}
          controller={controller}
          name={keyOfWorkers(num)}
          look={`category workbench-category-${index % NUM_CATEGORIES}`}
          text={keyOfWorkers(num)}
        />
      ))}
      {(workers.length ? [] : states).map((state) => (
        <Entry
          key={state}
          controller={controller}
          name={state}
          look={`${state === "running" ? "dotted" : "state"} workbench-state-${state}`}
          text={state}
        />
      ))}
      {drawn.some((trial) => without.has(trial)) ? (
        <Entry
          controller={controller}
          name={NO_RESULT}
          look="dotted workbench-state-stopped"
          text="breaks a limit or missed its target"
        />
      ) : null}
      {chart.band ? (
        <Entry
          controller={controller}
          name={BAND}
          look="band"
          text={`spread of ${formatCount(chart.band.numTrials, "trial")}`}
        />
      ) : null}
      <span class="workbench-gap" />
      {update.num_trials ? (
        <span class="workbench-number">
          {drawn.length} of {formatCount(update.num_trials, "trial")} drawn
          {unseen ? `, ${unseen} reported no number` : ""}
        </span>
      ) : null}
    </div>
  );
}

interface EntryProps {
  controller: Controller;
  name: string;
  look: string;
  text: string;
}

function Entry({ controller, name, look, text }: EntryProps) {
  const { chart } = controller.state.view;
  const isShown = !chart.hidden.includes(name);
  const toggle = () =>
    controller.show({
      chart: { ...chart, hidden: isShown ? [...chart.hidden, name] : chart.hidden.filter((one) => one !== name) },
    });
  return (
    <button
      type="button"
      class="workbench-legend-entry"
      aria-pressed={isShown}
      title={isShown ? `Hide: ${text}` : `Show: ${text}`}
      onClick={toggle}
    >
      <i class={`workbench-key workbench-key-${look}`} aria-hidden="true" /> {text}
    </button>
  );
}
