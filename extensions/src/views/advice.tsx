// The advice of a run as a card, once there is one.
import type { Controller } from "../controller";
import { AdviceCard } from "./advice_card";
import { Empty } from "./components";

export function Advice({ controller }: { controller: Controller }) {
  const { card, latest } = controller.state.run ?? {};
  if (card) return <AdviceCard card={card} />;
  return (
    <Empty title="No advice yet">
      <p>It appears here when the measurements are done.</p>
      {latest ? <p>{latest}</p> : null}
    </Empty>
  );
}
