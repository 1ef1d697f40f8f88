// The experiment as YAML and as Python, in step with the form and as good to edit.
import { useEffect, useState } from "preact/hooks";
import type { Language } from "./message_types";
import { Tabs } from "./tabs";
import { ProblemText, useUniqueId, useTextField, type FormProps } from "./text_field";

export const LANGUAGE_NAMES: Record<Language, string> = { yaml: "YAML", python: "Python" };

const MIN_LINES = 12;
const MAX_LINES = 34;

export function Texts({ form }: FormProps) {
  const [language, setLanguage] = useState<Language>("yaml");
  const id = useUniqueId();
  return (
    <div class="workbench-form-texts" role="group" aria-label="Experiment as text">
      <Tabs
        id={id}
        label="Language"
        tabs={(Object.keys(LANGUAGE_NAMES) as Language[]).map((name) => ({ name, title: LANGUAGE_NAMES[name] }))}
        chosen={language}
        onChoose={(name: Language) => setLanguage(name)}
      />
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${language}`}>
        <TextEditor key={language} form={form} language={language} />
      </div>
    </div>
  );
}

function TextEditor({ form, language }: FormProps & { language: Language }) {
  const id = useUniqueId();
  const state = form.state;
  const problems = state[`${language}_problems`];
  const typed = useTextField(form, state[language], (text) => form.send({ type: language, text }), true);
  useEffect(() => {
    form.setUnapplied(language, typed.isOpen);
    return () => form.setUnapplied(language, false);
  }, [typed.isOpen]);
  const lines = Math.min(MAX_LINES, Math.max(MIN_LINES, typed.text.split("\n").length + 1));
  return (
    <>
      <textarea
        aria-label={`The experiment as ${LANGUAGE_NAMES[language]}`}
        aria-describedby={id}
        aria-invalid={problems.length > 0 || undefined}
        dir="ltr"
        spellcheck={false}
        autocomplete="off"
        rows={lines}
        value={typed.text}
        onInput={(event) => typed.type(event.currentTarget.value)}
        onFocus={typed.enter}
        onBlur={typed.leave}
      />
      <div id={id} role="status" class="workbench-form-under">
        {problems.length ? (
          <>
            {problems.map((problem, at) => (
              <ProblemText key={at} problem={problem} withField />
            ))}
            <span class="workbench-hint">The form shows its last valid state. </span>
            <button type="button" class="workbench-link" onClick={() => form.send({ type: language, text: "" })}>
              Discard changes
            </button>
          </>
        ) : null}
      </div>
    </>
  );
}
