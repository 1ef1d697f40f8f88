// What happened, in words; what needs attention stands out.
import { useState } from "preact/hooks";
import { isAlert } from "../alerts";
import type { Controller } from "../controller";
import { formatCount, formatClock, formatDuration } from "../format";
import type { LogLine } from "../types";
import { saveAs } from "./actions";
import { Empty, Search } from "./components";

const MARKS: Record<LogLine["level"], string> = { info: "", good: "✓", warning: "!", error: "✕" };
const MAX_SHOWN = 300;

export function Log({ controller }: { controller: Controller }) {
  const { log, logSkipped } = controller.state;
  const { run } = controller.state.view;
  const [onlyAlerts, setOnlyAlerts] = useState(false);
  const [text, setText] = useState("");
  const alerts = log.filter(isAlert);
  const words = text.toLowerCase();
  const found = (onlyAlerts ? alerts : log).filter((line) => line.text.toLowerCase().includes(words));
  // What workers report arrives a little later than it happened.
  const lines = [...found]
    .sort((a, b) => a.time_unix_s - b.time_unix_s)
    .slice(-MAX_SHOWN)
    .reverse();
  return (
    <section class="workbench-log" aria-label="Events">
      <div class="workbench-bar">
        <label>
          <input type="checkbox" checked={onlyAlerts} onChange={() => setOnlyAlerts(!onlyAlerts)} /> only alerts
        </label>
        <span class="workbench-muted">
          {text ? `${formatCount(found.length, "line")} found` : formatCount(alerts.length, "alert")}, newest first
        </span>
        <span class="workbench-gap" />
        <Search label="Search events" value={text} onInput={setText} />
        {run === null ? null : (
          <button
            type="button"
            title="Save all events as a text file"
            onClick={() => saveAs(controller, `runs/${encodeURIComponent(run)}/log`, `${run}-events.log`)}
          >
            Download
          </button>
        )}
      </div>
      {lines.length ? (
        <ol aria-label="Events">
          {lines.map((line, index) => (
            <Line key={`${line.seq}/${lines.length - index}`} line={line} controller={controller} />
          ))}
          {logSkipped && !onlyAlerts ? (
            <li class="workbench-muted">{formatCount(logSkipped, "older line")} not shown</li>
          ) : null}
        </ol>
      ) : (
        <Empty title={text ? "No event matches" : onlyAlerts ? "No alerts" : "No events yet"} />
      )}
    </section>
  );
}

function Line({ line, controller }: { line: LogLine; controller: Controller }) {
  const { trial } = line;
  return (
    <li class={`workbench-log-${line.level}`}>
      <time class="workbench-number" title={formatClock(line.time_unix_s)}>
        {formatDuration(line.run_time_s)}
      </time>
      <span
        class="workbench-log-mark"
        role={MARKS[line.level] ? "img" : undefined}
        aria-label={MARKS[line.level] ? line.level : undefined}
      >
        {MARKS[line.level]}
      </span>
      <bdi class="workbench-log-text">{line.text}</bdi>
      {trial == null ? null : (
        <button type="button" class="workbench-link" onClick={() => showTrial(controller, trial)}>
          trial {trial}
        </button>
      )}
    </li>
  );
}

function showTrial(controller: Controller, trial: number): void {
  controller.show({ tab: "curves" });
  controller.chooseTrial(trial);
}
