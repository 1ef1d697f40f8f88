// Tiers: a slider for the threshold of the first exit over what it gives, and the tiers while they run.
import { useState } from "preact/hooks";
import { formatBytes, formatDuration, formatNumber, formatPercent } from "../format";
import { ProblemText, useUniqueId } from "../forms/text_field";
import type { SchedulerPoint, TiersPicture } from "../types";
import type { TiersConnection } from "./connection";
import { Curve, type Series } from "./curve";
import { LiveTiers } from "./live_tiers";
import { durationOf } from "./duration";

export interface AppProps {
  connection: TiersConnection;
}

export function App({ connection }: AppProps) {
  const { picture, run, isDisconnected } = connection;
  return (
    <>
      <div role="alert">
        {isDisconnected ? <p class="workbench-notice workbench-notice-error">{connection.lost}</p> : null}
        {run?.problem ? (
          <p class="workbench-notice workbench-notice-error">
            <ProblemText problem={run.problem} withField />
          </p>
        ) : null}
      </div>
      {picture ? (
        <Tiers picture={picture} connection={connection} />
      ) : run?.problem || isDisconnected ? null : (
        <p class="workbench-form-empty" role="status">
          Measuring the stages of the model …
        </p>
      )}
    </>
  );
}

function Tiers({ picture, connection }: { picture: TiersPicture; connection: TiersConnection }) {
  const [scheduler, setScheduler] = useState(picture.scheduler);
  const [place, setPlace] = useState(() => placeOf(picture, picture.threshold));
  const id = useUniqueId();
  const { threshold, share } = picture.points[place];
  const names = picture.points[0].schedulers.map((one) => one.scheduler);
  const points = picture.points.flatMap((one) => one.schedulers.filter((each) => each.scheduler === scheduler));
  const machines = picture.tiers.map((name, at) => `${picture.counts[at].toLocaleString("en")} × ${name}`);
  return (
    <>
      <div class="workbench-bar workbench-form-head">
        <strong>{picture.file}</strong>
        <span class="workbench-muted">{machines.join(", ")}</span>
        <span class="workbench-gap" />
        <label>
          Scheduler{" "}
          <select value={scheduler} onChange={(event) => setScheduler(event.currentTarget.value)}>
            {names.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      </div>
      {picture.note ? <p class="workbench-notice">{picture.note}</p> : null}
      <div class="workbench-tiers-slider">
        <label for={id}>Exit threshold</label>
        <input
          id={id}
          type="range"
          min={0}
          max={picture.points.length - 1}
          value={place}
          aria-valuetext={`${formatNumber(threshold)}, ${formatPercent(share)} leave at the first exit`}
          onInput={(event) => setPlace(Number(event.currentTarget.value))}
        />
        <output for={id}>{formatNumber(threshold)}</output>
      </div>
      <p class="workbench-hint">
        {formatPercent(share)} of the samples leave at the first exit.{" "}
        <Setting picture={picture} threshold={threshold} onReset={(value) => setPlace(placeOf(picture, value))} />
      </p>
      <Facts point={points[place]} tiers={picture.tiers} />
      <Curves picture={picture} points={points} place={place} onPlace={setPlace} />
      <LiveTiers connection={connection} picture={picture} scheduler={scheduler} threshold={threshold} />
    </>
  );
}

/** What has to be written so that a threshold holds. */
function Setting({
  picture,
  threshold,
  onReset,
}: {
  picture: TiersPicture;
  threshold: number;
  onReset(value: number): void;
}) {
  if (threshold === picture.threshold) {
    return <>This threshold is in use{threshold === picture.exported ? "; it is the exported one" : ""}.</>;
  }
  return (
    <>
      {threshold === picture.exported ? (
        "This is the exported threshold. To use it, remove threshold from place."
      ) : (
        <>
          To use it, write <code>threshold: {threshold}</code> into <code>place</code>.
        </>
      )}{" "}
      <button type="button" class="workbench-link" onClick={() => onReset(picture.threshold)}>
        Back to {formatNumber(picture.threshold)}
      </button>
    </>
  );
}

function groupFacts(point: SchedulerPoint): [string, string][] {
  return typeof point.group_accuracy === "number" ? [["Accuracy of groups", point.group_accuracy.toFixed(4)]] : [];
}

function Facts({ point, tiers }: { point: SchedulerPoint; tiers: string[] }) {
  const facts: [string, string][] = [
    ["Accuracy", point.accuracy.toFixed(4)],
    ...groupFacts(point),
    ["Mean", durationOf(point.mean_s)],
    ["p50", durationOf(point.p50_s)],
    ["p95", durationOf(point.p95_s)],
    ["Bytes", formatBytes(point.bytes_per_sample)],
    ...tiers.map((name, at): [string, string] => [`Load ${name}`, formatPercent(point.load[at])]),
  ];
  return (
    <dl class="workbench-facts workbench-form-facts">
      {facts.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Curves({
  picture,
  points,
  place,
  onPlace,
}: {
  picture: TiersPicture;
  points: SchedulerPoint[];
  place: number;
  onPlace(place: number): void;
}) {
  const one = (read: (point: SchedulerPoint) => number | null): Series[] => [{ values: points.map(read) }];
  const load = picture.tiers.map((name, at) => ({ name, values: points.map((point) => point.load[at]) }));
  const charts: {
    title: string;
    series: Series[];
    write(value: number): string;
    isFromZero: boolean;
    limit?: number;
  }[] = [
    {
      title: "Accuracy",
      series: one((point) => point.accuracy),
      write: (value) => value.toFixed(4),
      isFromZero: false,
    },
    { title: "p95", series: one((point) => point.p95_s), write: formatDuration, isFromZero: true },
    {
      title: "Bytes for a request",
      series: one((point) => point.bytes_per_sample),
      write: formatBytes,
      isFromZero: true,
    },
    { title: "Load", series: load, write: formatPercent, isFromZero: true, limit: picture.busy },
  ];
  const labels = picture.points.map((point) => formatNumber(point.threshold));
  return (
    <>
      <div class="workbench-tiers-curves">
        {charts.map((chart) => (
          <Curve key={chart.title} {...chart} labels={labels} place={place} onPlace={onPlace} />
        ))}
      </div>
      <p class="workbench-hint">
        Equally many samples lie between neighbouring thresholds. {balanceOf(picture, points, labels)}
      </p>
    </>
  );
}

/** From which threshold on the last tier is busier than it should be. */
function balanceOf(picture: TiersPicture, points: SchedulerPoint[], labels: string[]): string {
  const tier = picture.tiers[picture.tiers.length - 1];
  const busy = `place.busy, ${formatPercent(picture.busy)}`;
  const first = points.findIndex((point) => point.load[point.load.length - 1] > picture.busy);
  if (first < 0) return `No threshold takes the load of ${tier} beyond ${busy}.`;
  if (first === 0) return `Every threshold takes the load of ${tier} beyond ${busy}.`;
  return `Balance: thresholds above ${labels[first - 1]} take the load of ${tier} beyond ${busy} (dashed).`;
}

function placeOf(picture: TiersPicture, threshold: number): number {
  const gaps = picture.points.map((point) => Math.abs(point.threshold - threshold));
  return gaps.indexOf(Math.min(...gaps));
}
