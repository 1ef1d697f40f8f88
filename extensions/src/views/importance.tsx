// How much each parameter decided: bars with their intervals, and how far they are computed.
import type { Controller } from "../controller";
import { formatPercent } from "../format";
import type { ImportanceBar } from "../types";
import { Card } from "./analysis_card";

export function ImportanceCard({ controller }: { controller: Controller }) {
  const { importance, analysis } = controller.state;
  const metric = analysis?.objectives[0].metric ?? "the objective";
  return (
    <Card title="Importance" hint={`Share of the variance of ${metric}, with its 90 % interval`}>
      {importance === null ? (
        <p class="workbench-muted">Waiting for the server …</p>
      ) : importance.state === "computing" ? (
        <p class="workbench-muted" role="status">
          <i class="workbench-spinner" aria-hidden="true" /> Computing, {importance.words} …
        </p>
      ) : importance.state === "failed" ? (
        <p class="workbench-notice workbench-notice-error">
          {importance.words}{" "}
          <button type="button" onClick={() => controller.retryImportance()}>
            Compute again
          </button>
        </p>
      ) : (
        <>
          {importance.bars?.length ? (
            <ul class="workbench-importance">
              {importance.bars.map((bar) => (
                <Bar key={bar.name} bar={bar} />
              ))}
            </ul>
          ) : null}
          <p class="workbench-muted">{importance.words}</p>
          {(importance.notes ?? []).map((note) => (
            <p key={note} class="workbench-muted">
              {note}
            </p>
          ))}
        </>
      )}
    </Card>
  );
}

const MOST_IN_HEAD = 3;

/** The parameters that decided most, on one line below how a run ended. */
export function ImportanceLine({ controller }: { controller: Controller }) {
  const bars = controller.state.importance?.bars ?? [];
  if (!bars.length) return null;
  const others = bars.length - MOST_IN_HEAD;
  return (
    <div class="workbench-importance-line" role="group" aria-label="Importance, with 90 % intervals">
      <span class="workbench-muted">What mattered</span>
      <ul class="workbench-importance">
        {bars.slice(0, MOST_IN_HEAD).map((bar) => (
          <Bar key={bar.name} bar={bar} />
        ))}
      </ul>
      {others > 0 ? (
        <button type="button" class="workbench-quiet" onClick={() => controller.show({ tab: "analysis" })}>
          {others} more
        </button>
      ) : null}
    </div>
  );
}

function Bar({ bar: { name, share, low, high } }: { bar: ImportanceBar }) {
  const [at, from, to] = [share, low, high].map((part) => `${100 * Math.min(part, 1)}%`);
  return (
    <li>
      <bdi>{name}</bdi>
      <span class="workbench-importance-track" aria-hidden="true">
        <span class="workbench-importance-share" style={{ inlineSize: at }} />
        <span
          class="workbench-importance-interval"
          style={{ insetInlineStart: from, inlineSize: `calc(${to} - ${from})` }}
        />
      </span>
      <span class="workbench-number">
        {formatPercent(share)} <small>{`${formatPercent(low)} to ${formatPercent(high)}`}</small>
      </span>
    </li>
  );
}
