// The tiers as processes of this machine: started by a button, shown with their queues, compared with the plan.
import { useState } from "preact/hooks";
import { formatBytes, formatNumber, formatPercent } from "../format";
import { Group } from "../forms/text_field";
import type { SchedulerPoint, TiersPicture, TiersStatus } from "../types";
import type { TiersConnection } from "./connection";
import { durationOf } from "./duration";

interface LiveTiersProps {
  connection: TiersConnection;
  picture: TiersPicture;
  scheduler: string;
  threshold: number;
}

const STATES = { measuring: "Measuring …", idle: "", starting: "Starting processes …", running: "", done: "Done." };

const ELSEWHERE = ", started by another process";

export function LiveTiers({ connection, picture, scheduler, threshold }: LiveTiersProps) {
  const [rate, setRate] = useState(20);
  const [seconds, setSeconds] = useState(20);
  const { run, statuses } = connection;
  const isBusy = run?.state === "starting" || run?.state === "running";
  const canRun = picture.runnable.includes(scheduler);
  const at_s = statuses.at(-1)?.at_s ?? 0;
  return (
    <Group title="Run the tiers on this machine">
      <div class="workbench-bar">
        <NumberInput label="Requests per second" value={rate} onValue={setRate} />
        <NumberInput label="Seconds" value={seconds} onValue={setSeconds} />
        {isBusy && run?.is_elsewhere ? null : isBusy ? (
          <button type="button" onClick={() => connection.send({ type: "stop" })}>
            ■ Stop
          </button>
        ) : (
          <button
            type="button"
            class="workbench-primary"
            disabled={!canRun || connection.isDisconnected}
            onClick={() => connection.send({ type: "run", scheduler, threshold, rate_per_s: rate, time_s: seconds })}
          >
            ▶ Run {scheduler}
          </button>
        )}
        <span role="status" class="workbench-muted">
          {run?.state === "running"
            ? `${run.scheduler}: ${Math.round(at_s)} of ${formatNumber(run.time_s)} s${run.is_elsewhere ? ELSEWHERE : ""}`
            : STATES[run?.state ?? "idle"]}
        </span>
      </div>
      {canRun ? null : <p class="workbench-hint">This scheduler can be planned, but not run.</p>}
      {statuses.length ? <Queues tiers={picture.tiers} statuses={statuses} /> : null}
      {run?.measured && run.expected ? (
        <Result
          tiers={picture.tiers}
          measured={run.measured}
          expected={run.expected}
          words={`${run.scheduler} at the threshold ${formatNumber(run.threshold)}: ${run.num_requests} requests, ${run.num_unanswered} unanswered.`}
        />
      ) : null}
    </Group>
  );
}

function NumberInput({ label, value, onValue }: { label: string; value: number; onValue(value: number): void }) {
  const take = (text: string) => {
    const typed = Number(text);
    if (Number.isFinite(typed) && typed > 0) onValue(typed);
  };
  return (
    <label>
      {label}{" "}
      <input
        type="number"
        min={1}
        class="workbench-tiers-number"
        value={value}
        onChange={(event) => take(event.currentTarget.value)}
      />
    </label>
  );
}

/** Each tier with the requests that wait there, now and before. */
function Queues({ tiers, statuses }: { tiers: string[]; statuses: TiersStatus[] }) {
  const most = Math.max(4, ...statuses.flatMap((one) => one.tiers.map((tier) => tier.num_waiting)));
  const now = statuses[statuses.length - 1];
  return (
    <>
      <table class="workbench-tiers-queues">
        <thead>
          <tr>
            <th>Tier</th>
            <th>Waiting</th>
            <th>Queue now</th>
            <th>Load</th>
            <th>Answers/s</th>
            <th>Queue so far</th>
          </tr>
        </thead>
        <tbody>
          {tiers.map((name, at) => {
            const tier = now.tiers[at];
            return (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td class="workbench-number">{tier.num_waiting}</td>
                <td>
                  <meter min={0} max={most} value={tier.num_waiting} aria-label={`Requests that wait at ${name}`} />
                </td>
                <td class="workbench-number">{formatPercent(tier.load)}</td>
                <td class="workbench-number">{tier.answers_per_s.toFixed(1)}</td>
                <td>
                  <History name={name} most={most} values={statuses.map((one) => one.tiers[at].num_waiting)} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <p class="workbench-hint">
        Requests that a tier has sent further wait there, too. The last tier also answers the few requests that are sent
        straight to it to measure what an answer takes.
      </p>
    </>
  );
}

const WIDTH = 240;
const HEIGHT = 26;

function History({ name, most, values }: { name: string; most: number; values: number[] }) {
  const last = Math.max(1, values.length - 1);
  const points = values.map(
    (value, at) => `${((at / last) * WIDTH).toFixed(1)},${(HEIGHT - 1 - (value / most) * (HEIGHT - 2)).toFixed(1)}`,
  );
  return (
    <svg
      class="workbench-tiers-history"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={`Queue of ${name}: ${values.at(-1)} now, at most ${Math.max(...values)}`}
    >
      <polyline points={points.join(" ")} />
    </svg>
  );
}

interface ResultProps {
  tiers: string[];
  measured: SchedulerPoint;
  expected: SchedulerPoint;
  words: string;
}

function Result({ tiers, measured, expected, words }: ResultProps) {
  const groups: [string, (point: SchedulerPoint) => string][] =
    typeof measured.group_accuracy === "number"
      ? [["Accuracy of groups", (point) => (point.group_accuracy ?? NaN).toFixed(4)]]
      : [];
  const rows: [string, (point: SchedulerPoint) => string][] = [
    ["Accuracy", (point) => point.accuracy.toFixed(4)],
    ...groups,
    ["Mean", (point) => durationOf(point.mean_s)],
    ["p50", (point) => durationOf(point.p50_s)],
    ["p95", (point) => durationOf(point.p95_s)],
    ["Bytes", (point) => formatBytes(point.bytes_per_sample)],
    ...tiers.map((name, at): [string, (point: SchedulerPoint) => string] => [
      `Load ${name}`,
      (point) => formatPercent(point.load[at]),
    ]),
  ];
  return (
    <>
      <p>{words}</p>
      <table class="workbench-tiers-result">
        <thead>
          <tr>
            <td />
            {rows.map(([label]) => (
              <th key={label}>{label}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {[
            { label: "measured", point: measured },
            { label: "expected", point: expected },
          ].map(({ label, point }) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {rows.map(([name, write]) => (
                <td key={name} class="workbench-number">
                  {write(point)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
