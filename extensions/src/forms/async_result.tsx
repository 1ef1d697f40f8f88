// The result of a slow query: its progress or its error; the previous result stays meanwhile.
import type { ComponentChildren } from "preact";
import type { QueryState } from "./kernel_connection";
import type { Topic } from "./message_types";
import type { Results } from "../types";
import { ProblemText, type FormProps } from "./text_field";

/** Warns that a result belongs to the last valid state, while the experiment is invalid. */
export function OutdatedNotice({ form }: FormProps) {
  return form.state.is_experiment ? null : (
    <p class="workbench-notice">The experiment has problems; this shows its last valid state.</p>
  );
}

interface SlowlyProps<K extends Topic> {
  answer: QueryState<K> | null;
  working: string;
  onRetry?(): void;
  /** Shows no progress while there is a result. */
  isQuiet?: boolean;
  children?(result: Results[K]): ComponentChildren;
}

export function AsyncResult<K extends Topic>({ answer, working, onRetry, isQuiet, children }: SlowlyProps<K>) {
  if (!answer) return null;
  const isWorking = answer.status === "working" && !(isQuiet && answer.result);
  return (
    <div class="workbench-form-slowly" aria-busy={isWorking}>
      <div role="status">
        {isWorking ? (
          <p class="workbench-form-working">
            <span class="workbench-form-spinner" aria-hidden="true" />
            {answer.progress || working}
          </p>
        ) : null}
      </div>
      <div role="alert">
        {answer.status === "failed" ? (
          <div class="workbench-notice workbench-notice-error">
            {answer.problem ? <ProblemText problem={answer.problem} withField /> : "The request failed."}
            {onRetry ? (
              <p>
                <button type="button" onClick={onRetry}>
                  Try again
                </button>
              </p>
            ) : null}
          </div>
        ) : null}
      </div>
      {answer.result && answer.status !== "failed" && children ? (
        <div class={`workbench-form-result${isWorking ? " workbench-form-old" : ""}`}>{children(answer.result)}</div>
      ) : null}
    </div>
  );
}
