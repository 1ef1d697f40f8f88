// The advice: measures on request, shows the card, applies all or parts of it, and predicts other plans.
import { useState } from "preact/hooks";
import { AdviceCard } from "../views/advice_card";
import { FigureBox } from "./figure";
import type { Json } from "./message_types";
import type { AdviceCard as AdviceCardParts, AdvisedSetting, AdviceSummary } from "../types";
import { AsyncResult } from "./async_result";
import { Group, useQuery, useUniqueId, type FormProps } from "./text_field";
import { WhatIf } from "./what_if";
import { parseValue, toJsonText } from "./field_values";

const OBJECTIVES: [string, string][] = [
  ["time", "shortest time to the target"],
  ["money", "lowest cost (workers × time)"],
  ["energy", "lowest energy use"],
  ["throughput", "highest samples/s"],
];

interface AdvicePartProps extends FormProps {
  themeName: string;
  /** Shows the run that was started; without it, none is started here. */
  onStart?(): void;
}

export function AdvicePart({ form, themeName, onStart }: AdvicePartProps) {
  const answer = form.answer("advice");
  const result = answer?.result?.card ? answer.result : null;
  const isMeasuring = answer?.status === "working" && answer.arguments.measure === true;
  // What it would change depends on what is written.
  useQuery(form.state.hash ?? "right last", () => isMeasuring || form.query("advice", { measure: false }), 0);
  return (
    <>
      <Measure form={form} isMeasuring={isMeasuring} isFirst={!result} />
      <AsyncResult
        answer={answer}
        working={isMeasuring ? "Measuring …" : "Looking for stored advice …"}
        isQuiet={!isMeasuring}
      >
        {() =>
          result?.card ? (
            <Advice form={form} result={result} card={result.card} themeName={themeName} onStart={onStart} />
          ) : null
        }
      </AsyncResult>
    </>
  );
}

function Measure({ form, isMeasuring, isFirst }: FormProps & { isMeasuring: boolean; isFirst: boolean }) {
  const id = useUniqueId();
  const [time, setTime] = useState("1m");
  const [objective, setObjective] = useState("time");
  return (
    <form
      class="workbench-form-measure"
      onSubmit={(event) => {
        event.preventDefault();
        form.query("advice", { measure: true, time: time.trim() || "1m", objective });
      }}
    >
      {isFirst ? (
        <p class="workbench-form-empty">
          The advisor trains your model briefly on the available hardware and recommends every setting that you left
          open: batch size, learning rate, workers and precision. It states how certain each recommendation is.
        </p>
      ) : null}
      <div class="workbench-bar">
        <label for={`${id}-objective`}>Optimize for</label>
        <select id={`${id}-objective`} value={objective} onChange={(event) => setObjective(event.currentTarget.value)}>
          {OBJECTIVES.map(([name, words]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
        <label for={`${id}-time`}>Measuring time</label>
        <input
          id={`${id}-time`}
          class="workbench-form-bound"
          value={time}
          onInput={(event) => setTime(event.currentTarget.value)}
        />
        <button
          type="submit"
          class={isFirst ? "workbench-primary" : ""}
          disabled={isMeasuring || form.state.hash === null}
        >
          {isFirst ? "Measure and advise" : "Measure again"}
        </button>
        {isMeasuring ? (
          <button type="button" onClick={() => form.query("stop_advice")}>
            Stop measuring
          </button>
        ) : null}
        {form.state.hash === null ? (
          <span class="workbench-muted">The experiment has problems; fix them first.</span>
        ) : null}
      </div>
    </form>
  );
}

interface AdviceProps extends AdvicePartProps {
  result: AdviceSummary;
  card: AdviceCardParts;
}

function Advice({ form, result, card, themeName, onStart }: AdviceProps) {
  return (
    <>
      <AdviceCard card={card}>
        {onStart ? (
          <div class="workbench-buttons">
            <button
              type="button"
              class="workbench-primary"
              title="Applies every setting below and starts a run; Undo takes the settings back"
              onClick={() => {
                applyAndStart(form, result.apply);
                onStart();
              }}
            >
              Apply and start
            </button>
          </div>
        ) : null}
      </AdviceCard>
      {result.apply.length ? (
        <Apply
          key={JSON.stringify(result.apply.map((one) => [one.path, one.value]))}
          form={form}
          apply={result.apply}
        />
      ) : null}
      {result.controls.length ? (
        <WhatIf key={JSON.stringify(card.headline)} form={form} controls={result.controls} />
      ) : null}
      {result.figures.length ? <Figures figures={result.figures} themeName={themeName} /> : null}
    </>
  );
}

/** The kernel takes messages in order: the run is one of the experiment with the advice. */
function applyAndStart(form: FormProps["form"], apply: AdvisedSetting[]): void {
  const changes = apply.map((one): [string, Json] => [one.path, one.value]);
  const removals = apply.flatMap((one) => one.removals ?? []);
  if (changes.length) form.edit(changes, "Apply the advice", removals);
  form.query("start");
}

/** Applies all of the advice or parts of it; a typed value replaces the advised one. */
function Apply({ form, apply }: FormProps & { apply: AdvisedSetting[] }) {
  const [left, setLeft] = useState<string[]>([]);
  const [typed, setTyped] = useState<Record<string, string>>({});
  const isOverridden = (one: AdvisedSetting) => Boolean(typed[one.path]?.trim());
  const valueOf = (one: AdvisedSetting): Json => (isOverridden(one) ? parseValue(typed[one.path]) : one.value);
  const taken = apply.filter((one) => !left.includes(one.path));
  const send = () => {
    const label = taken.length === apply.length ? "Apply the advice" : "Apply part of the advice";
    const removals = taken.flatMap((one) => one.removals ?? []);
    form.edit(
      taken.map((one): [string, Json] => [one.path, valueOf(one)]),
      label,
      removals,
    );
  };
  return (
    <Group title="Apply the advice">
      <div class="workbench-form-table">
        <table class="workbench-form-apply">
          <thead>
            <tr>
              <th scope="col">apply</th>
              <th scope="col">setting</th>
              <th scope="col">now</th>
              <th scope="col">advised (edit to override)</th>
            </tr>
          </thead>
          <tbody>
            {apply.map((one) => (
              <tr key={one.path}>
                <td>
                  <input
                    type="checkbox"
                    aria-label={`Apply ${one.label}`}
                    checked={!left.includes(one.path)}
                    onChange={(event) =>
                      setLeft(
                        event.currentTarget.checked ? left.filter((path) => path !== one.path) : [...left, one.path],
                      )
                    }
                  />
                </td>
                <th scope="row">
                  {one.label}
                  {one.reason ? <small>{one.reason}</small> : null}
                </th>
                <td>{one.now === null ? "default" : toJsonText(one.now)}</td>
                <td>
                  <input
                    aria-label={`Value of ${one.label}`}
                    class="workbench-form-bound"
                    dir="ltr"
                    value={typed[one.path] ?? toJsonText(one.value)}
                    onInput={(event) => setTyped({ ...typed, [one.path]: event.currentTarget.value })}
                  />
                  {isOverridden(one) ? <small>advised: {toJsonText(one.value)}</small> : null}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="workbench-buttons">
        <button type="button" class="workbench-primary" disabled={!taken.length} onClick={send}>
          {taken.length === apply.length ? "Apply all" : `Apply ${taken.length} of ${apply.length}`}
        </button>
      </div>
    </Group>
  );
}

function Figures({ figures, themeName }: { figures: AdviceSummary["figures"]; themeName: string }) {
  const [name, setName] = useState(figures[0].name);
  const shown = figures.find((one) => one.name === name) ?? figures[0];
  return (
    <Group
      title="Evidence"
      aside={
        <select aria-label="Figure" value={shown.name} onChange={(event) => setName(event.currentTarget.value)}>
          {figures.map((one) => (
            <option key={one.name} value={one.name}>
              {one.title}
            </option>
          ))}
        </select>
      }
    >
      <FigureBox key={shown.name} figure={shown.figure} title={shown.title} themeName={themeName} />
    </Group>
  );
}
