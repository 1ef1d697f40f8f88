// What users wrote about the run that is shown: tags, which can be removed here, and notes.
import type { Controller } from "../controller";
import type { RunDetail } from "../types";
import { doAction, wordsOf } from "./actions";

export function Labels({ controller, run }: { controller: Controller; run: RunDetail }) {
  const tags = run.tags ?? [];
  if (!tags.length && !run.notes && !run.archived) return null;
  const remove = (tag: string) =>
    void doAction(controller, { kind: "tag", run: run.run_id, arguments: { remove: [tag] } }).catch((error: unknown) =>
      controller.notify(wordsOf(error), "error"),
    );
  return (
    <div class="workbench-labels">
      {run.archived ? <span class="workbench-tag workbench-tag-archived">archived</span> : null}
      {tags.map((tag) => (
        <span key={tag} class="workbench-tag">
          <bdi>{tag}</bdi>
          <button type="button" aria-label={`Remove the tag ${tag}`} title="Remove" onClick={() => remove(tag)}>
            ✕
          </button>
        </span>
      ))}
      {run.notes ? <p class="workbench-notes">{run.notes}</p> : null}
    </div>
  );
}
