// How fast the hardware goes: samples per second of the trials, and where the time of a step goes.
import type { Controller } from "../controller";
import { formatCell, formatDuration, formatPercent } from "../format";
import type { TrialDetail } from "../types";
import { Chart } from "./chart";

export function Throughput({ controller }: { controller: Controller }) {
  const { trial: latest, view, run } = controller.state;
  const trial = latest && latest.number === (view.trial ?? run?.best?.trial) ? latest : null;
  return (
    <>
      <Chart controller={controller} throughput />
      {trial ? <StepOfTrial trial={trial} /> : null}
    </>
  );
}

function StepOfTrial({ trial }: { trial: TrialDetail }) {
  const speed = trial.course.find(({ key }) => key === "samples_per_s");
  return (
    <section class="workbench-step" aria-label={`Step time of trial ${trial.number}`}>
      <h2>
        Step time of trial {trial.number}
        <small>
          <bdi>{trial.plan}</bdi>
          {speed ? ` · ${formatCell(speed.value, speed.format)} ${speed.label}` : null}
        </small>
      </h2>
      <StepParts parts={trial.parts_s} />
    </section>
  );
}

const NUM_COLOURS = 8;

export function StepParts({ parts }: { parts: Record<string, number> }) {
  const names = Object.keys(parts);
  const total = names.reduce((sum, name) => sum + parts[name], 0);
  if (!total) return <p class="workbench-muted">Its step time has not been measured yet.</p>;
  return (
    <div class="workbench-parts">
      <div class="workbench-parts-bar" aria-hidden="true">
        {names.map((name, index) => (
          <div
            key={name}
            style={{ flexGrow: parts[name] / total, background: `var(--workbench-category-${index % NUM_COLOURS})` }}
          />
        ))}
      </div>
      <dl>
        {names.map((name, index) => (
          <div key={name}>
            <dt>
              <i style={{ background: `var(--workbench-category-${index % NUM_COLOURS})` }} aria-hidden="true" />
              <bdi>{name}</bdi>
            </dt>
            <dd class="workbench-number">
              {formatDuration(parts[name])} <small>{formatPercent(parts[name] / total)}</small>
            </dd>
          </div>
        ))}
        <div>
          <dt>total</dt>
          <dd class="workbench-number">{formatDuration(total)}</dd>
        </div>
      </dl>
    </div>
  );
}
