// The result of an automatic run: the chosen model in a few sentences, and the leaderboard.
import type { Controller } from "../controller";
import type { ChosenModel } from "../types";
import { Empty } from "./components";

export function Result({ controller }: { controller: Controller }) {
  const chosen = controller.state.run?.chosen;
  if (!chosen) {
    return (
      <Empty title="No result yet">
        <p>The model is chosen and tested when the run has ended.</p>
      </Empty>
    );
  }
  const [headline, ...others] = chosen.summary;
  return (
    <article class="workbench-card workbench-result" aria-label="Result">
      <p class="workbench-result-headline">{headline}</p>
      {others.map((line) => (
        <p key={line}>{line}</p>
      ))}
      <Leaderboard chosen={chosen} />
    </article>
  );
}

/** Its text columns; all others hold numbers. */
const TEXTS = new Set(["model", "with"]);

function Leaderboard({ chosen }: { chosen: ChosenModel }) {
  const classOf = (at: number) => (TEXTS.has(chosen.columns[at]) ? undefined : "workbench-numeric");
  return (
    <div class="workbench-table" tabIndex={0} role="group" aria-label="Leaderboard">
      <table>
        <thead>
          <tr>
            {chosen.columns.map((name, at) => (
              <th key={name} scope="col" class={classOf(at)}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {chosen.rows.map((row, number) => (
            <tr key={number} class={number === 0 ? "workbench-best" : undefined}>
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
