// The advice: measured on request, shown as its card, applied in full or in part, overruled, asked further.
import { useState } from "preact/hooks";
import { FigureBox } from "./figure";
import type { Advised, AdvicePicture, Json, Mapping } from "./protocol";
import { Slowly } from "./slowly";
import { Group, useAsked, useOwnId, type FormProps } from "./typed";
import { WhatIf } from "./what_if";
import { parsed, textOf } from "./written";

const OBJECTIVES: [string, string][] = [
  ["time", "least time to the target"],
  ["money", "least money (workers × time)"],
  ["energy", "least energy"],
  ["throughput", "most samples a second"],
];

export function AdvicePart({ form, themeName }: FormProps & { themeName: string }) {
  const held = form.part("advice");
  const picture = held?.picture?.card.length ? held.picture : null;
  const isMeasuring = held?.status === "working" && held.asked.measure === true;
  // What it would change depends on what is written.
  useAsked(form.state!.hash ?? "right last", () => isMeasuring || form.ask("advice", { measure: false }), 0);
  return (
    <>
      <Measure form={form} isMeasuring={isMeasuring} isFirst={!picture} />
      <Slowly held={held} working={isMeasuring ? "Measuring …" : "Looking for a stored advice …"} isQuiet={!isMeasuring}>
        {() => (picture ? <Advice form={form} picture={picture} themeName={themeName} /> : null)}
      </Slowly>
    </>
  );
}

function Measure({ form, isMeasuring, isFirst }: FormProps & { isMeasuring: boolean; isFirst: boolean }) {
  const id = useOwnId();
  const [time, setTime] = useState("1m");
  const [objective, setObjective] = useState("time");
  return (
    <form
      class="workbench-form-measure"
      onSubmit={(event) => {
        event.preventDefault();
        form.ask("advice", { measure: true, time: time.trim() || "1m", objective });
      }}
    >
      {isFirst ? (
        <p class="workbench-form-empty">
          The advisor trains your model for a moment on the hardware that is there, and recommends what you left to it:
          batch size, learning rate, workers, precision. It says how sure it is.
        </p>
      ) : null}
      <div class="workbench-bar">
        <label for={`${id}-objective`}>Best is</label>
        <select id={`${id}-objective`} value={objective} onChange={(event) => setObjective(event.currentTarget.value)}>
          {OBJECTIVES.map(([name, words]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
        <label for={`${id}-time`}>measured for</label>
        <input
          id={`${id}-time`}
          class="workbench-form-bound"
          value={time}
          onInput={(event) => setTime(event.currentTarget.value)}
        />
        <button type="submit" class={isFirst ? "workbench-primary" : ""} disabled={isMeasuring || form.state!.hash === null}>
          {isFirst ? "Measure and advise" : "Measure again"}
        </button>
        {isMeasuring ? (
          <button type="button" onClick={() => form.ask("stop_advice")}>
            Stop measuring
          </button>
        ) : null}
        {form.state!.hash === null ? <span class="workbench-muted">The experiment has problems; mend them first.</span> : null}
      </div>
    </form>
  );
}

function Advice({ form, picture, themeName }: FormProps & { picture: AdvicePicture; themeName: string }) {
  return (
    <>
      <div class="workbench-card">
        <pre tabIndex={0} role="group" aria-label="Advice in words" dir="auto">
          {picture.card.join("\n")}
        </pre>
      </div>
      {picture.apply.length ? (
        <Apply key={JSON.stringify(picture.apply.map((one) => [one.path, one.value]))} form={form} apply={picture.apply} />
      ) : null}
      {picture.controls.length ? <WhatIf key={picture.card.join()} form={form} controls={picture.controls} /> : null}
      {picture.figures.length ? <Figures figures={picture.figures} themeName={themeName} /> : null}
    </>
  );
}

/** What of the advice is taken; a value that is typed over overrules it. */
function Apply({ form, apply }: FormProps & { apply: Advised[] }) {
  const [left, setLeft] = useState<string[]>([]);
  const [overruled, setOverruled] = useState<Mapping>({});
  const valueOf = (one: Advised): Json => overruled[one.path] ?? one.value;
  const taken = apply.filter((one) => !left.includes(one.path));
  const send = () => {
    const label = taken.length === apply.length ? "Apply the advice" : "Apply part of the advice";
    const removals = taken.flatMap((one) => one.removals ?? []);
    form.edit(taken.map((one): [string, Json] => [one.path, valueOf(one)]), label, removals);
  };
  return (
    <Group title="Apply it">
      <div class="workbench-form-table">
        <table class="workbench-form-apply">
          <thead>
            <tr>
              <th scope="col">take</th>
              <th scope="col">setting</th>
              <th scope="col">now</th>
              <th scope="col">advised; type over to overrule</th>
            </tr>
          </thead>
          <tbody>
            {apply.map((one) => (
              <tr key={one.path}>
                <td>
                  <input
                    type="checkbox"
                    aria-label={`Take ${one.label}`}
                    checked={!left.includes(one.path)}
                    onChange={(event) =>
                      setLeft(event.currentTarget.checked ? left.filter((path) => path !== one.path) : [...left, one.path])
                    }
                  />
                </td>
                <th scope="row">
                  {one.label}
                  {one.reason ? <small>{one.reason}</small> : null}
                </th>
                <td>{one.now === null ? "default" : textOf(one.now)}</td>
                <td>
                  <input
                    aria-label={`Value of ${one.label}`}
                    class="workbench-form-bound"
                    dir="ltr"
                    value={textOf(valueOf(one))}
                    onChange={(event) => setOverruled({ ...overruled, [one.path]: parsed(event.currentTarget.value) })}
                  />
                  {one.path in overruled ? <small>advised: {textOf(one.value)}</small> : null}
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

function Figures({ figures, themeName }: { figures: AdvicePicture["figures"]; themeName: string }) {
  const [name, setName] = useState(figures[0].name);
  const shown = figures.find((one) => one.name === name) ?? figures[0];
  return (
    <Group
      title="The evidence"
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
