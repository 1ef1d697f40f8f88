// The decisions about versions of the code, where a person accepts or reverts them.
import { useState } from "preact/hooks";
import type { Controller } from "../controller";
import { formatNumber } from "../format";
import type { CodeDecision, RunDetail } from "../types";
import { doAction, wordsOf } from "./actions";

export function Decisions({ controller, run }: { controller: Controller; run: RunDetail }) {
  const decisions = run.decisions ?? [];
  if (!decisions.length) return null;
  return (
    <section class="workbench-decisions" aria-label="Decisions">
      <table>
        <thead>
          <tr>
            <th scope="col">version</th>
            <th scope="col">decision</th>
            <th scope="col">improvement</th>
            <th scope="col">verdict</th>
          </tr>
        </thead>
        <tbody>
          {decisions.map((decision) => (
            <Row key={decision.version} controller={controller} decision={decision} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Row({ controller, decision }: { controller: Controller; decision: CodeDecision }) {
  return (
    <tr>
      <th scope="row" title={`compared with ${decision.baseline}`}>
        <bdi>{decision.version}</bdi>
      </th>
      <td title={decision.words}>{decision.decision ?? decision.words}</td>
      <td>{improvementOf(decision)}</td>
      <td>
        {decision.verdict ? (
          <>
            {decision.verdict} by <bdi>{decision.by}</bdi>{" "}
          </>
        ) : null}
        {decision.verdict === "accepted" ? null : (
          <VerdictButton controller={controller} kind="accept" decision={decision} />
        )}
        {decision.verdict === "reverted" ? null : (
          <VerdictButton controller={controller} kind="revert" decision={decision} />
        )}
      </td>
    </tr>
  );
}

function improvementOf({ effect, low, high }: CodeDecision): string {
  if (effect == null) return "";
  if (low == null || high == null) return formatNumber(effect);
  return `${formatNumber(effect)} (${formatNumber(low)} to ${formatNumber(high)})`;
}

interface VerdictButtonProps {
  controller: Controller;
  kind: "accept" | "revert";
  decision: CodeDecision;
}

function VerdictButton({ controller, kind, decision }: VerdictButtonProps) {
  const [isBusy, setBusy] = useState(false);
  const run = controller.state.run?.run_id;
  const decide = () => {
    setBusy(true);
    doAction(controller, { kind, run, arguments: { version: decision.version } })
      .catch((error: unknown) => controller.notify(wordsOf(error), "error"))
      .finally(() => setBusy(false));
  };
  return (
    <button
      type="button"
      aria-label={`${kind === "accept" ? "Accept" : "Revert"} ${decision.version}`}
      title={`workbench ${kind} ${run ?? ""} ${decision.version}`}
      disabled={isBusy}
      onClick={decide}
    >
      {kind === "accept" ? "Accept" : "Revert"}
    </button>
  );
}
