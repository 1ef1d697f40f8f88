// The result of an automatic run: the candidates so far, then the chosen model, what it does, the leaderboard.
import type { Controller } from "../controller";
import type { ChosenModel, RunDetail } from "../types";
import { Empty } from "./components";
import { FigureBox } from "./figure_box";

export function Result({ controller }: { controller: Controller }) {
  const { run } = controller.state;
  if (run?.chosen) return <Chosen controller={controller} runId={run.run_id} chosen={run.chosen} />;
  if (!run?.candidates) {
    return (
      <Empty title="No result yet">
        <p>The model is chosen and tested when the run has ended.</p>
      </Empty>
    );
  }
  const words = "Validation scores; the model is chosen and tested when the run has ended.";
  return <Candidates candidates={run.candidates} words={words} />;
}

function Candidates({ candidates, words }: { candidates: NonNullable<RunDetail["candidates"]>; words: string }) {
  const { summary, columns, rows } = candidates;
  return (
    <article class="workbench-card workbench-result" aria-label="Candidates">
      <p class="workbench-result-headline">{summary}</p>
      <p class="workbench-muted">{words}</p>
      <Leaderboard columns={columns} rows={rows} />
    </article>
  );
}

function Chosen({ controller, runId, chosen }: { controller: Controller; runId: string; chosen: ChosenModel }) {
  const [headline, ...others] = chosen.summary;
  // Beside a cell or a list there is room for the answer and its models.
  const isWide = controller.form === "wide";
  const figures = isWide ? (chosen.figures ?? []) : [];
  const candidates = isWide ? controller.state.run?.candidates : null;
  // In a cell the first sentence of the summary stands right above.
  const isSaid = controller.form === "output" && controller.state.run?.summary != null;
  return (
    <>
      <article class="workbench-card workbench-result" aria-label="Result">
        {isSaid ? null : <p class="workbench-result-headline">{headline}</p>}
        {others.map((line) => (
          <p key={line}>{line}</p>
        ))}
        <Leaderboard columns={chosen.columns} rows={chosen.rows} />
      </article>
      {figures.map((name) => (
        <FigureBox key={name} controller={controller} runId={runId} name={name} live={false} />
      ))}
      {candidates ? <Candidates candidates={candidates} words="Validation scores of all that were tried." /> : null}
    </>
  );
}

/** Its text columns; all others hold numbers. */
/** The state of a candidate that may still become better or worse. */
const UNFINISHED = "under way";
const TEXTS = new Set(["model", "state", "folds", "with"]);

function Leaderboard({ columns, rows }: Pick<ChosenModel, "columns" | "rows">) {
  const classOf = (at: number) => (TEXTS.has(columns[at]) ? undefined : "workbench-numeric");
  return (
    <div class="workbench-table" tabIndex={0} role="group" aria-label="Leaderboard">
      <table>
        <thead>
          <tr>
            {columns.map((name, at) => (
              <th key={name} scope="col" class={classOf(at)}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            <tr key={number} class={number === 0 && !row.includes(UNFINISHED) ? "workbench-best" : undefined}>
              {row.map((cell, at) => (
                <td key={at} class={classOf(at)}>
                  <bdi>{cell}</bdi>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
