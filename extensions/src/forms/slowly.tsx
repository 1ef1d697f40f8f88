// What takes a while: it says that it works, how far it is and why it failed; the last picture stays meanwhile.
import type { ComponentChildren } from "preact";
import type { Held } from "./conversation";
import type { Pictures, Slow } from "./protocol";
import { ProblemWords, type FormProps } from "./typed";

/** Says of a picture that it is not of what is written now, where that is no experiment. */
export function OldPicture({ form }: FormProps) {
  return form.state!.is_experiment ? null : (
    <p class="workbench-notice">Something in the experiment is wrong; this shows what was right last.</p>
  );
}

interface SlowlyProps<K extends Slow> {
  held: Held<K> | null;
  working: string;
  again?(): void;
  /** Says nothing of new questions while there is a picture. */
  isQuiet?: boolean;
  children?(picture: Pictures[K]): ComponentChildren;
}

export function Slowly<K extends Slow>({ held, working, again, isQuiet, children }: SlowlyProps<K>) {
  if (!held) return null;
  const isWorking = held.status === "working" && !(isQuiet && held.picture);
  return (
    <div class="workbench-form-slowly" aria-busy={isWorking}>
      <div role="status">
        {isWorking ? (
          <p class="workbench-form-working">
            <span class="workbench-form-spinner" aria-hidden="true" />
            {held.progress || working}
          </p>
        ) : null}
      </div>
      <div role="alert">
        {held.status === "failed" ? (
          <div class="workbench-notice workbench-notice-error">
            {held.problem ? <ProblemWords problem={held.problem} withField /> : "It failed."}
            {again ? (
              <p>
                <button type="button" onClick={again}>
                  Try again
                </button>
              </p>
            ) : null}
          </div>
        ) : null}
      </div>
      {held.picture && held.status !== "failed" && children ? (
        <div class={`workbench-form-picture${isWorking ? " workbench-form-old" : ""}`}>{children(held.picture)}</div>
      ) : null}
    </div>
  );
}
