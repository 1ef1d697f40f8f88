// The result: the best configuration beside the default one, the leaderboard, and what can be done next.
import { useEffect, useState } from "preact/hooks";
import { formatDuration, formatNumber, formatValue } from "../format";
import { Code, StateMark } from "../views/components";
import type { RunResult, ResultRow } from "../types";
import { AsyncResult } from "./async_result";
import { capitalized, asSentence, Group, useUniqueId, type FormProps } from "./text_field";
import { parseValue } from "./field_values";

const FINISHED = new Set(["complete", "stopped", "failed", "lost"]);
const ASK_AGAIN_MS = 5000;

interface ResultProps extends FormProps {
  runId: string;
  onOtherData(): void;
}

export function ResultPart({ form, runId, onOtherData }: ResultProps) {
  const answer = form.answer("result");
  const isOver = FINISHED.has(answer?.result?.state ?? "");
  useEffect(() => {
    if (!runId) return;
    form.query("result", { run_id: runId });
    const timer = isOver ? undefined : setInterval(() => form.query("result", { run_id: runId }), ASK_AGAIN_MS);
    return () => clearInterval(timer);
  }, [runId, isOver]);
  if (!runId) return <p class="workbench-form-empty">No run has been started here yet. Its result will appear here.</p>;
  return (
    <AsyncResult
      answer={answer}
      working="Reading the run …"
      isQuiet
      onRetry={() => form.query("result", { run_id: runId })}
    >
      {(result) => <Result form={form} result={result} onOtherData={onOtherData} />}
    </AsyncResult>
  );
}

function Result({ form, result, onOtherData }: FormProps & { result: RunResult; onOtherData(): void }) {
  const { best, metric } = result;
  return (
    <>
      <div class="workbench-bar">
        <StateMark state={result.state} />
        <span class="workbench-muted">
          run <bdi>{result.run_id}</bdi>
          {result.counts ? `: ${result.counts}` : ""}
        </span>
      </div>
      {best ? (
        <dl class="workbench-facts workbench-form-facts">
          <div class="workbench-fact-best">
            <dt>Best {metric}</dt>
            <dd>{formatNumber(best.values[metric])}</dd>
          </div>
          {Object.entries(best.params).map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{formatValue(value)}</dd>
            </div>
          ))}
        </dl>
      ) : (
        <p class="workbench-form-empty">No trial is complete yet.</p>
      )}
      {result.certainty?.length ? <p>{result.certainty.map((sentence) => `${sentence}. `)}</p> : null}
      <Comparison form={form} result={result} />
      {result.leaderboard.length ? <Leaderboard result={result} /> : null}
      <Next form={form} result={result} onOtherData={onOtherData} />
    </>
  );
}

function Comparison({ form, result }: FormProps & { result: RunResult }) {
  const { default_comparison: found, best, metric, run_id } = result;
  if (!found) return null;
  return (
    <Group title="Compared with the default configuration">
      <p>{capitalized(asSentence(found.words))}</p>
      {found.default && best ? (
        <dl class="workbench-facts workbench-form-facts">
          <div>
            <dt>default</dt>
            <dd>{formatNumber(found.default.values[metric])}</dd>
          </div>
          <div>
            <dt>best</dt>
            <dd>{formatNumber(best.values[metric])}</dd>
          </div>
        </dl>
      ) : null}
      {found.enqueue ? (
        <div class="workbench-buttons">
          <button type="button" onClick={() => form.query("enqueue", { run_id, params: found.enqueue })}>
            Try the default configuration as well
          </button>
        </div>
      ) : null}
      <Done form={form} part="enqueue" />
      {found.try_it ? (
        <details class="workbench-form-details">
          <summary>Use a terminal or Python instead</summary>
          <Code label="command: try the default" text={found.try_it.command} />
          <Code label="Python: try the default" text={found.try_it.python} />
        </details>
      ) : null}
    </Group>
  );
}

function Leaderboard({ result: { leaderboard, metric } }: { result: RunResult }) {
  const names = [...new Set(leaderboard.flatMap((row) => Object.keys(row.params)))];
  const metrics = [metric, ...Object.keys(leaderboard[0].values).filter((one) => one !== metric)];
  return (
    <Group title="Leaderboard">
      <div class="workbench-form-table" tabIndex={0} role="group" aria-label="Best trials">
        <table>
          <thead>
            <tr>
              <th scope="col">trial</th>
              <th scope="col">state</th>
              {metrics.map((one) => (
                <th scope="col" key={one} class="workbench-numeric">
                  {one}
                </th>
              ))}
              {names.map((name) => (
                <th scope="col" key={name}>
                  {name}
                </th>
              ))}
              <th scope="col" class="workbench-numeric">
                took
              </th>
            </tr>
          </thead>
          <tbody>
            {leaderboard.map((row, at) => (
              <LeaderboardRow key={row.trial} row={row} metrics={metrics} names={names} isBest={at === 0} />
            ))}
          </tbody>
        </table>
      </div>
    </Group>
  );
}

function LeaderboardRow({
  row,
  metrics,
  names,
  isBest,
}: {
  row: ResultRow;
  metrics: string[];
  names: string[];
  isBest: boolean;
}) {
  return (
    <tr class={isBest ? "workbench-form-best" : undefined}>
      <th scope="row">{row.trial}</th>
      <td>
        <StateMark state={row.state} />
      </td>
      {metrics.map((one) => (
        <td key={one} class="workbench-numeric">
          {formatNumber(row.values[one])}
        </td>
      ))}
      {names.map((name) => (
        <td key={name}>{name in row.params ? formatValue(row.params[name]) : "–"}</td>
      ))}
      <td class="workbench-numeric">{formatDuration(row.duration_s)}</td>
    </tr>
  );
}

function Next({ form, result, onOtherData }: FormProps & { result: RunResult; onOtherData(): void }) {
  const id = useUniqueId();
  const [to, setTo] = useState("best");
  const [trials, setTrials] = useState("10");
  const { run_id } = result;
  return (
    <Group title="Next steps">
      <form
        class="workbench-bar"
        onSubmit={(event) => {
          event.preventDefault();
          form.query("export", { run_id, to: to.trim() });
        }}
      >
        <label for={`${id}-to`}>Export the best to the folder</label>
        <input id={`${id}-to`} dir="auto" value={to} onInput={(event) => setTo(event.currentTarget.value)} />
        <button type="submit" disabled={!result.best || !to.trim()}>
          Export
        </button>
      </form>
      <Done form={form} part="export" />
      <form
        class="workbench-bar"
        onSubmit={(event) => {
          event.preventDefault();
          form.query("extend", { run_id, trials: parseValue(trials) });
        }}
      >
        <label for={`${id}-trials`}>Continue with</label>
        <input
          id={`${id}-trials`}
          class="workbench-form-bound"
          inputMode="numeric"
          value={trials}
          onInput={(event) => setTrials(event.currentTarget.value)}
        />
        <span>more trials</span>
        <button type="submit">Continue</button>
      </form>
      <Done form={form} part="extend" />
      <div class="workbench-bar">
        <button type="button" onClick={onOtherData}>
          Try it with other data
        </button>
        <span class="workbench-muted">The same experiment; this run stays unchanged.</span>
      </div>
      {result.commands.map((one) => (
        <details key={one.label} class="workbench-form-details">
          <summary>{one.label} from a terminal or Python</summary>
          <Code label={`command: ${one.label}`} text={one.command} />
          <Code label={`Python: ${one.label}`} text={one.python} />
        </details>
      ))}
    </Group>
  );
}

function Done({ form, part }: FormProps & { part: "export" | "extend" | "enqueue" }) {
  return (
    <AsyncResult answer={form.answer(part)} working="Sending …">
      {(result) => <p class="workbench-form-done">{result.message}</p>}
    </AsyncResult>
  );
}
