// A range as a slider with two handles over a histogram of what would be sampled, all on one scale.
import { useEffect, useRef, useState } from "preact/hooks";
import { formatNumber, formatPercent } from "../format";
import type { SampledParameter } from "../types";
import { partOf, stepped, valueAt, type Scale } from "./space";

interface RangeSliderProps {
  name: string;
  low: number;
  high: number;
  scale: Scale;
  sampled: SampledParameter | null;
  onChange(change: { low?: number; high?: number }): void;
}

type End = "low" | "high";

const PLACES = 1000;
/** Presses of keys that follow each other so soon are one change. */
const PAUSE_MS = 500;

export function RangeSlider({ name, low, high, scale, sampled, onChange }: RangeSliderProps) {
  const [moved, setMoved] = useState<Partial<Record<End, number>>>({});
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const sent = useRef<Partial<Record<End, number>>>({});
  const ends = { low: moved.low ?? low, high: moved.high ?? high };
  useEffect(() => {
    setMoved({});
    sent.current = {};
  }, [low, high]);
  useEffect(() => () => clearTimeout(timer.current), []);

  const move = (end: End, value: number): Record<End, number> => {
    const next = { ...ends, [end]: end === "low" ? Math.min(value, ends.high) : Math.max(value, ends.low) };
    setMoved({ [end]: next[end] });
    return next;
  };
  const commit = (end: End, value: number) => {
    clearTimeout(timer.current);
    if (value === (sent.current[end] ?? { low, high }[end])) return;
    sent.current[end] = value;
    onChange({ [end]: value });
  };
  const press = (end: End, event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    const edge = { Home: scale.low, End: scale.high }[event.key];
    const target = by === undefined ? edge : stepped(scale, ends[end], by);
    if (target === undefined) return;
    event.preventDefault();
    const next = move(end, target)[end];
    clearTimeout(timer.current);
    timer.current = setTimeout(() => commit(end, next), PAUSE_MS);
  };
  const from = partOf(scale, ends.low);
  const to = partOf(scale, ends.high);
  return (
    <div
      class="workbench-form-slider"
      dir="ltr"
      title={`From ${formatNumber(scale.low)} to ${formatNumber(scale.high)}${scale.log ? ", logarithmic" : ""}`}
    >
      <Histogram sampled={sampled} scale={scale} name={name} />
      <div class="workbench-form-track">
        <div style={{ insetInlineStart: `${from * 100}%`, inlineSize: `${Math.max(0, to - from) * 100}%` }} />
      </div>
      {(["low", "high"] as const).map((end) => (
        <input
          key={end}
          type="range"
          min={0}
          max={PLACES}
          // Where both handles meet, the one that can still move lies on top.
          style={{ zIndex: end === "low" && from > 0.5 ? 3 : 2 }}
          value={Math.round((end === "low" ? from : to) * PLACES)}
          aria-label={`${end === "low" ? "Lowest" : "Highest"} ${name}`}
          aria-valuetext={formatNumber(ends[end])}
          onInput={(event) => move(end, valueAt(scale, Number(event.currentTarget.value) / PLACES))}
          onChange={(event) => commit(end, move(end, valueAt(scale, Number(event.currentTarget.value) / PLACES))[end])}
          onKeyDown={(event) => press(end, event)}
          onBlur={() => commit(end, ends[end])}
        />
      ))}
    </div>
  );
}

function Histogram({ sampled, scale, name }: { sampled: SampledParameter | null; scale: Scale; name: string }) {
  const bars = sampled ? barsOf(sampled) : [];
  if (!bars.length) return <div class="workbench-form-histogram" />;
  const most = Math.max(...bars.map((one) => one.count), 1);
  return (
    <svg
      class="workbench-form-histogram"
      viewBox="0 0 1000 100"
      preserveAspectRatio="none"
      role="img"
      aria-label={`Sampled values of ${name}: from ${formatNumber(bars[0].from)} to ${formatNumber(bars[bars.length - 1].to)}`}
    >
      {bars.map(({ from, to, count }, at) => {
        const [left, right] = [partOf(scale, from) * 1000, partOf(scale, to) * 1000];
        const size = (count / most) * 96;
        // A single value has no width of its own.
        const width = Math.max(8, right - left - 2);
        return <rect key={at} x={(left + right - width) / 2} width={width} y={100 - size} height={size} />;
      })}
    </svg>
  );
}

/** Bins, or single numbers where a range has few. */
function barsOf({ edges, choices, counts }: SampledParameter): { from: number; to: number; count: number }[] {
  if (edges) return counts.map((count, at) => ({ from: edges[at], to: edges[at + 1], count }));
  return (choices ?? []).flatMap((one, at) =>
    typeof one === "number" ? [{ from: one, to: one, count: counts[at] }] : [],
  );
}

/** How often each choice would be sampled: each on a bar of its share, side by side. */
export function ChoiceBars({ sampled, name }: { sampled: SampledParameter; name: string }) {
  const total = sampled.counts.reduce((sum, one) => sum + one, 0) || 1;
  const shares = sampled.shares ?? sampled.counts.map((count) => count / total);
  return (
    <ul class="workbench-form-shares" aria-label={`Sampled values of ${name}`}>
      {sampled.choices?.map((choice, at) => (
        <li key={at} style={{ "--workbench-share": `${shares[at] * 100}%` }}>
          <bdi>{typeof choice === "string" ? choice : JSON.stringify(choice)}</bdi>
          <span class="workbench-number">{formatPercent(shares[at])}</span>
        </li>
      ))}
    </ul>
  );
}
