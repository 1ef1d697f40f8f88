// How the curves are drawn, what is drawn beside them, and how they are saved.
import { useState } from "preact/hooks";
import type { Controller } from "../controller";
import { counterpartOf } from "../counterpart";
import { formatMetric } from "../format";
import type { ChartLooks } from "../state";
import { MAX_FURTHER } from "../subscription";
import { Menu } from "./menu";

interface OptionsProps {
  controller: Controller;
  metric: string;
  throughput: boolean;
  onSave(kind: "png" | "csv"): void;
}

const SMOOTHINGS: [weight: number, label: string][] = [
  [0, "none"],
  [0.6, "light"],
  [0.9, "strong"],
  [0.98, "very strong"],
];

export function ChartOptions({ controller, metric, throughput, onSave }: OptionsProps) {
  const { view, run } = controller.state;
  const looks = view.chart;
  const change = (part: Partial<ChartLooks>) => controller.show({ chart: { ...looks, ...part } });
  const metrics = run?.metrics ?? [];
  const other = throughput ? null : counterpartOf(metric, metrics);
  const further = throughput || controller.form === "output" ? [] : metrics.filter((name) => name !== metric);
  return (
    <Menu label="View" title="Smoothing, axis, further metrics, download">
      {(close) => (
        <div class="workbench-chart-options">
          <label>
            smoothing
            <select
              value={String(looks.smoothing)}
              onChange={(event) => change({ smoothing: Number(event.currentTarget.value) })}
            >
              {SMOOTHINGS.map(([weight, label]) => (
                <option key={weight} value={String(weight)}>
                  {label}
                </option>
              ))}
            </select>
          </label>
          <Check
            label="distance from the best"
            checked={looks.distance}
            onChange={(distance) => change({ distance })}
          />
          <Check label="log" checked={looks.logarithmic} onChange={(logarithmic) => change({ logarithmic })} />
          <Limit label="from" value={looks.low} onChange={(low) => change({ low })} />
          <Limit label="to" value={looks.high} onChange={(high) => change({ high })} />
          {other === null ? null : (
            <Check
              label={`with ${formatMetric(other)}, dashed`}
              checked={looks.withOther}
              onChange={(withOther) => change({ withOther })}
            />
          )}
          {further.length ? (
            <fieldset>
              <legend>more metrics</legend>
              {further.map((name) => (
                <Check
                  key={name}
                  label={formatMetric(name)}
                  checked={looks.further.includes(name)}
                  disabled={!looks.further.includes(name) && looks.further.length >= MAX_FURTHER - 1}
                  onChange={(shown) =>
                    change({ further: shown ? [...looks.further, name] : looks.further.filter((one) => one !== name) })
                  }
                />
              ))}
            </fieldset>
          ) : null}
          {(["png", "csv"] as const).map((kind) => (
            <button
              key={kind}
              type="button"
              onClick={() => {
                close();
                onSave(kind);
              }}
            >
              Save as {kind.toUpperCase()}
            </button>
          ))}
        </div>
      )}
    </Menu>
  );
}

interface CheckProps {
  label: string;
  checked: boolean;
  disabled?: boolean;
  onChange(checked: boolean): void;
}

function Check({ label, checked, disabled, onChange }: CheckProps) {
  return (
    <label class="workbench-check">
      <input
        type="checkbox"
        checked={checked}
        disabled={disabled}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <bdi>{label}</bdi>
    </label>
  );
}

/** One end of the vertical axis; empty for where the data ends. */
function Limit(props: { label: string; value: number | null; onChange(value: number | null): void }) {
  const { label, value, onChange } = props;
  // A run that is under way is drawn again and again, also in the middle of a number.
  const [typed, setTyped] = useState<string | null>(null);
  return (
    <label>
      axis {label}
      <input
        type="number"
        step="any"
        placeholder="auto"
        value={typed ?? value ?? ""}
        onInput={(event) => setTyped(event.currentTarget.value)}
        onChange={(event) => {
          const given = event.currentTarget.value;
          setTyped(null);
          onChange(given === "" || !Number.isFinite(Number(given)) ? null : Number(given));
        }}
      />
    </label>
  );
}
