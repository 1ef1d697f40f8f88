// What another plan would do, answered from the fitted models as soon as a control is moved.
import { useState } from "preact/hooks";
import { formatBytes, formatDuration, formatRate } from "../format";
import { FieldInput } from "./fields";
import type { Mapping } from "./message_types";
import type { FormField, Prediction, WhatIfResult } from "../types";
import { AsyncResult } from "./async_result";
import { capitalized, asSentence, Group, useQuery, useUniqueId, type FormProps } from "./text_field";

export function WhatIf({ form, controls }: FormProps & { controls: FormField[] }) {
  const [values, setValues] = useState<Mapping>(() =>
    Object.fromEntries(controls.map((one) => [one.path, one.value ?? one.default])),
  );
  useQuery(JSON.stringify(values), () => form.query("what_if", values));
  const answer = form.answer("what_if");
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
      <AsyncResult answer={answer} working="Evaluating the fitted models …">
        {(result) => <Answer result={result} />}
      </AsyncResult>
    </Group>
  );
}

function Control({
  form,
  field,
  onValue,
}: FormProps & { field: FormField; onValue: (value: Mapping[string]) => void }) {
  const id = useUniqueId();
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

function Answer({ result }: { result: WhatIfResult }) {
  const stated = [result.samples_per_s, result.step_time_s, result.memory_bytes, result.time_to_target_s].map(
    (predicted) => predicted.message,
  );
  const messages = result.messages?.filter((message) => !stated.includes(message));
  return (
    <>
      <dl class="workbench-facts workbench-form-facts">
        <Number label="Samples/s" predicted={result.samples_per_s} write={formatRate} />
        <Number label="Step time" predicted={result.step_time_s} write={formatDuration} />
        <Number label="Memory per worker" predicted={result.memory_bytes} write={formatBytes} />
        <Number label="Time to target" predicted={result.time_to_target_s} write={formatDuration} />
      </dl>
      {result.fits === false ? (
        <p class="workbench-notice workbench-notice-error">This does not fit into the available memory.</p>
      ) : null}
      {result.message ? <p>{capitalized(asSentence(result.message))}</p> : null}
      {messages?.map((message) => (
        <p class="workbench-hint" key={message}>
          {capitalized(asSentence(message))}
        </p>
      ))}
    </>
  );
}

/** A number is never shown without how sure it is, or why there is none. */
function Number({ label, predicted, write }: { label: string; predicted: Prediction; write(value: number): string }) {
  const { value, low, high, message } = predicted;
  return (
    <div>
      <dt>{label}</dt>
      <dd>
        {value == null ? "unknown" : write(value)}
        {low != null && high != null ? (
          <small>
            {write(low)} to {write(high)}
          </small>
        ) : null}
        {message ? <small class="workbench-form-why">{message}</small> : null}
      </dd>
    </div>
  );
}
