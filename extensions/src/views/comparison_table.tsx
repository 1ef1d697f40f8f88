// The table of compared runs: a column per run, a line per fact; what differs is marked.
import type { Controller } from "../controller";
import type { ComparisonState } from "../state";
import type { ComparedFact } from "../types";
import { categoryOf } from "../theme";

const HEADINGS: Record<ComparedFact["part"], string> = {
  result: "Result",
  "best parameters": "Best parameters",
  experiment: "Experiment",
  versions: "Versions",
};

const NO_CELL = "–";
/** What stands where an experiment sets nothing, and what it means. */
const MEANINGS: Record<string, string> = {
  default: "default: the setting has its default",
  [NO_CELL]: `${NO_CELL}: the run has no such setting`,
};

interface TableProps {
  controller: Controller;
  compared: ComparisonState;
}

export function ComparisonTable({ controller, compared }: TableProps) {
  const { view } = controller.state;
  const { runs, facts } = compared.update;
  const { everything } = view.comparison;
  const shown = facts.filter(({ part, differs }) => everything || differs || isAlwaysShown(part));
  const parts = (Object.keys(HEADINGS) as ComparedFact["part"][]).filter((part) =>
    shown.some((fact) => fact.part === part),
  );
  const settings = shown.filter(({ part }) => part === "experiment").flatMap((fact) => fact.cells);
  const cells = new Set(settings.map((cell) => cell ?? NO_CELL).filter((cell) => cell in MEANINGS));
  const numSame = facts.filter(({ part, differs }) => !differs && !isAlwaysShown(part)).length;
  return (
    <>
      <div class="workbench-compared-box" tabIndex={0} role="region" aria-label="Compared runs">
        <table class="workbench-compared">
          <thead>
            <tr>
              <td />
              {runs.map((run, index) => (
                <th key={run.run_id} scope="col">
                  <RunName controller={controller} run={run} index={index} />
                </th>
              ))}
            </tr>
          </thead>
          {parts.map((part) => (
            <tbody key={part}>
              <tr class="workbench-compared-part">
                <th scope="rowgroup" colSpan={runs.length + 1}>
                  {HEADINGS[part]}
                </th>
              </tr>
              {shown
                .filter((fact) => fact.part === part)
                .map((fact) => (
                  <Fact key={fact.name} fact={fact} />
                ))}
            </tbody>
          ))}
        </table>
      </div>
      {cells.size ? <p class="workbench-muted">{[...cells].map((cell) => MEANINGS[cell]).join("; ")}</p> : null}
      {numSame ? (
        <label class="workbench-check">
          <input
            type="checkbox"
            checked={everything}
            onChange={(event) =>
              controller.show({ comparison: { ...view.comparison, everything: event.currentTarget.checked } })
            }
          />
          also settings and versions that are the same ({numSame})
        </label>
      ) : null}
    </>
  );
}

function isAlwaysShown(part: ComparedFact["part"]): boolean {
  return part === "result" || part === "best parameters";
}

function RunName(props: { controller: Controller; run: ComparisonState["update"]["runs"][number]; index: number }) {
  const { controller, run, index } = props;
  const remove = () =>
    controller.show({ compared: controller.state.view.compared.filter((one) => one !== run.run_id) });
  return (
    <span class="workbench-compared-head">
      <i class="workbench-key" style={{ background: categoryOf(index, controller.theme) }} aria-hidden="true" />
      <button type="button" class="workbench-link" title={run.run_id} onClick={() => controller.openRun(run.run_id)}>
        <bdi>{run.label}</bdi>
      </button>
      <button type="button" class="workbench-quiet" aria-label={`Do not compare ${run.label}`} onClick={remove}>
        ✕
      </button>
    </span>
  );
}

function Fact({ fact }: { fact: ComparedFact }) {
  return (
    <tr class={fact.differs ? "workbench-differs" : undefined}>
      <th scope="row">
        <bdi>{fact.name}</bdi>
        {fact.differs ? (
          <span class="workbench-differs-mark" role="img" aria-label="differs">
            ≠
          </span>
        ) : null}
      </th>
      {fact.cells.map((cell, index) => (
        <td key={index} class={index === fact.best ? "workbench-compared-best" : undefined}>
          <bdi>{cell ?? NO_CELL}</bdi>
          {index === fact.best ? (
            <span class="workbench-star" role="img" aria-label="best">
              ★
            </span>
          ) : null}
        </td>
      ))}
    </tr>
  );
}
