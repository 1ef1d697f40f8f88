// The advice in words, as the server writes it.
import type { Controller } from "../controller";
import { Empty } from "./components";

export function Advice({ controller }: { controller: Controller }) {
  const card = controller.state.run?.card ?? [];
  if (!card.length) {
    return (
      <Empty title="No advice yet">
        <p>It appears here when the measurements are done.</p>
      </Empty>
    );
  }
  return (
    <article class="workbench-card" aria-label="Advice">
      <pre tabIndex={0} role="group" aria-label="Advice text" dir="auto">
        {card.join("\n")}
      </pre>
    </article>
  );
}
