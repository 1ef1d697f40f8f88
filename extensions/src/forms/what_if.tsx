// What another plan would do, answered from the fitted models as soon as a control is moved.
import { useState } from "preact/hooks";
import { formatBytes, formatDuration, formatNumber } from "../format";
import { FieldInput } from "./fields";
import type { Field, Mapping, Predicted, WhatIfPicture } from "./protocol";
import { Slowly } from "./slowly";
import { capitalised, ended, Group, useAsked, useOwnId, type FormProps } from "./typed";
import { formatCount } from "./words";

export function WhatIf({ form, controls }: FormProps & { controls: Field[] }) {
  const [values, setValues] = useState<Mapping>(() => Object.fromEntries(controls.map((one) => [one.path, one.value ?? one.default])));
  useAsked(JSON.stringify(values), () => form.ask("what_if", values));
  const held = form.part("what_if");
  return (
    <Group title="What if …">
      <div class="workbench-form-what-if">
        {controls.map((control) => (
          <Control
            key={control.path}
            form={form}
            field={{ ...control, value: values[control.path] }}
            onValue={(value) => setValues({ ...values, [control.path]: value ?? control.default })}
          />
        ))}
      </div>
      <Slowly held={held} working="Asking the fitted models …">
        {(picture) => <Answer picture={picture} />}
      </Slowly>
    </Group>
  );
}

function Control({ form, field, onValue }: FormProps & { field: Field; onValue: (value: Mapping[string]) => void }) {
  const id = useOwnId();
  return (
    <div class="workbench-form-input">
      <label for={id}>{field.label}</label>
      <FieldInput form={form} field={field} id={id} isWrong={false} onValue={onValue} />
      <span id={`${id}-help`} class="workbench-form-hidden">
        {field.help ?? ""}
      </span>
      <span id={`${id}-problem`} hidden />
    </div>
  );
}

function Answer({ picture }: { picture: WhatIfPicture }) {
  const said = [picture.samples_per_s, picture.step_time_s, picture.memory_bytes, picture.time_to_target_s].map((one) => one.words);
  const limits = picture.limits?.filter((limit) => !said.includes(limit));
  return (
    <>
      <dl class="workbench-facts workbench-form-facts">
        <Number label="Samples a second" predicted={picture.samples_per_s} write={formatCount} />
        <Number label="Time of a step" predicted={picture.step_time_s} write={formatStep} />
        <Number label="Memory of a worker" predicted={picture.memory_bytes} write={formatBytes} />
        <Number label="Time to the target" predicted={picture.time_to_target_s} write={formatDuration} />
      </dl>
      {picture.fits === false ? <p class="workbench-notice workbench-notice-error">This does not fit into the memory that is there.</p> : null}
      {picture.words ? <p>{capitalised(ended(picture.words))}</p> : null}
      {limits?.map((limit) => (
        <p class="workbench-hint" key={limit}>
          {capitalised(ended(limit))}
        </p>
      ))}
    </>
  );
}

function formatStep(time_s: number): string {
  return time_s < 0.1 ? `${formatNumber(time_s * 1000)} ms` : formatDuration(time_s);
}

/** A number is never shown without how sure it is, or why there is none. */
function Number({ label, predicted, write }: { label: string; predicted: Predicted; write(value: number): string }) {
  const { value, low, high, words } = predicted;
  return (
    <div>
      <dt>{label}</dt>
      <dd>
        {value == null ? "not known" : write(value)}
        {low != null && high != null ? (
          <small>
            {write(low)} to {write(high)}
          </small>
        ) : null}
        {words ? <small class="workbench-form-why">{words}</small> : null}
      </dd>
    </div>
  );
}
