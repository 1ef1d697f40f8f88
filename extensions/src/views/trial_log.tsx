// What a trial prints: live, searched as a whole by the server, and saved as a file.
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Controller } from "../controller";
import { formatBytes, formatCount, formatPercent } from "../format";
import type { TrialLog as Printed } from "../types";
import { saveAs } from "./actions";
import { Search } from "./components";

/** Closer to the end than this, in CSS pixels, and the view follows what is printed. */
const NEAR_END_PX = 24;

export function TrialLog({ controller }: { controller: Controller }) {
  const { view, trialLog } = controller.state;
  const log = trialLog?.trial === view.trial ? trialLog : null;
  const change = (part: Partial<typeof view.trialLog>) =>
    controller.show({ trialLog: { ...controller.state.view.trialLog, ...part } });
  // A trial that printed nothing has nothing to search.
  if (!log || (!log.num_bytes && !log.ranks.length)) return null;
  return (
    <section class="workbench-printed" aria-label="Log">
      <h3>
        Log <small class="workbench-number">{formatBytes(log.num_bytes)}</small>
      </h3>
      <div class="workbench-bar">
        <Search label="Search the log" value={view.trialLog.text} onInput={(text) => change({ text })} />
        {log.ranks.length > 1 ? (
          <select
            aria-label="Worker whose log is shown"
            value={view.trialLog.rank}
            onChange={(event) => change({ rank: Number(event.currentTarget.value) })}
          >
            {log.ranks.map((rank) => (
              <option key={rank} value={rank}>
                worker {rank}
              </option>
            ))}
          </select>
        ) : null}
        <button type="button" title="Save the whole log as a file" onClick={() => save(controller, log)}>
          Download
        </button>
      </div>
      <Lines log={log} />
      <p class="workbench-muted" role="status">
        {found(log)}
      </p>
    </section>
  );
}

function Lines({ log }: { log: Printed }) {
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    if (box.current && follows.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log]);
  const onScroll = ({ currentTarget: at }: { currentTarget: HTMLElement }) => {
    follows.current = at.scrollHeight - at.scrollTop - at.clientHeight < NEAR_END_PX;
  };
  return (
    <pre ref={box} tabIndex={0} role="group" dir="ltr" aria-label="Lines of the log" onScroll={onScroll}>
      {log.text
        ? log.lines.map((line, index) => <Marked key={index} line={line} text={log.text} />)
        : log.lines.join("\n")}
    </pre>
  );
}

function Marked({ line, text }: { line: string; text: string }) {
  const at = line.toLowerCase().indexOf(text.toLowerCase());
  if (at < 0) return <>{`${line}\n`}</>;
  return (
    <>
      {line.slice(0, at)}
      <mark>{line.slice(at, at + text.length)}</mark>
      {`${line.slice(at + text.length)}\n`}
    </>
  );
}

function found({ lines, num_found, searched, num_bytes }: Printed): string {
  if (num_found === null) return num_bytes ? "" : "Nothing was printed to this log.";
  const sofar = searched < 1 ? `, ${formatPercent(searched)} of the log searched` : "";
  const shown = lines.length < num_found ? `; the last ${lines.length} are shown` : "";
  return `${formatCount(num_found, "line")} found${shown}${sofar}`;
}

function save(controller: Controller, { trial, rank }: Printed): void {
  const { run } = controller.state.view;
  if (run === null) return;
  const name = `${run}-trial-${trial}${rank ? `-worker-${rank}` : ""}.log`;
  saveAs(controller, `runs/${encodeURIComponent(run)}/trials/${trial}/log?rank=${rank}`, name);
}
