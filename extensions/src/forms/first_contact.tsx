// What a form offers those who see it for the first time: an example that is run with one button.
import { capitalized, type FormProps } from "./text_field";

/** Nothing once something was changed, or a run was started. */
export function FirstContact({ form, onRun }: FormProps & { onRun(): void }) {
  const { example } = form.state;
  if (!example || form.isDisconnected || form.answer("start")) return null;
  const run = () => {
    form.send({ type: "preset", name: example.name });
    form.query("start");
    onRun();
  };
  return (
    <div class="workbench-form-first">
      <button type="button" class="workbench-primary" onClick={run}>
        Run an example
      </button>
      <p>
        {example.help ? `${capitalized(example.help)} ` : ""}Or choose a model and data of your own below; nothing runs
        before you start it.
      </p>
    </div>
  );
}
