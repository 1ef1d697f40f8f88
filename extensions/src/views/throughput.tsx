// How fast the hardware goes: samples per second of the trials, and where the time of a step goes.
import type { Controller } from "../controller";
import { formatDuration, formatNumber } from "../format";
import type { TrialPicture } from "../types";
import { Chart } from "./chart";

export function Throughput({ controller }: { controller: Controller }) {
  const { trial: told, view, run } = controller.state;
  const trial = told && told.number === (view.trial ?? run?.best?.trial) ? told : null;
  return (
    <>
      <Chart controller={controller} throughput />
      {trial ? <StepOfTrial trial={trial} /> : null}
    </>
  );
}

function StepOfTrial({ trial }: { trial: TrialPicture }) {
  return (
    <section class="workbench-step" aria-label={`A step of trial ${trial.number}`}>
      <h2>
        A step of trial {trial.number}
        <small>
          <bdi>{trial.plan}</bdi>
          {trial.samples_per_s == null ? null : ` · ${formatNumber(trial.samples_per_s)} samples/s`}
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
  if (!total) return <p class="workbench-muted">Its step has not been measured yet.</p>;
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
              {stepTime(parts[name])} <small>{Math.round((100 * parts[name]) / total)} %</small>
            </dd>
          </div>
        ))}
        <div>
          <dt>together</dt>
          <dd class="workbench-number">{stepTime(total)}</dd>
        </div>
      </dl>
    </div>
  );
}

function stepTime(seconds: number): string {
  return seconds < 1 ? `${formatNumber(seconds * 1000)} ms` : formatDuration(seconds);
}
