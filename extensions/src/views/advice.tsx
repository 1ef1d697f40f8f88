// The advice of a run as a card, once there is one.
import type { Controller } from "../controller";
import type { AdviceCard as Card, RunDetail } from "../types";
import { AdviceCard } from "./advice_card";
import { Empty } from "./components";

export function Advice({ controller }: { controller: Controller }) {
  const { run } = controller.state;
  const card = run?.card;
  if (run && card) {
    return (
      <AdviceCard card={card}>
        <div class="workbench-buttons">
          <button type="button" class="workbench-primary" onClick={() => start(controller, run, card)}>
            Start a run with it…
          </button>
        </div>
      </AdviceCard>
    );
  }
  return (
    <Empty title="No advice yet">
      <p>It appears here when the measurements are done.</p>
      {run?.latest ? <p>{run.latest}</p> : null}
    </Empty>
  );
}

/** Advice belongs to an experiment: its file starts with what is advised, in place of what it searches. */
function start(controller: Controller, { name, params }: RunDetail, { changes }: Card): void {
  const lines = Object.entries(changes).map(([path, value]) => {
    const parameter = path.slice(path.lastIndexOf(".") + 1);
    return `${params.includes(parameter) ? `search.${parameter}` : path}=${JSON.stringify(value)}`;
  });
  const filled = { name: "", settings: lines.join("\n"), address: "" };
  controller.openDialog({ kind: "start", experiment: name, filled });
}
