// What can be done with a run: one button for what is likeliest in its state, and a menu of all the rest.
import { useState } from "preact/hooks";
import type { Controller } from "../controller";
import type { Offer, RunDetail } from "../types";
import { doOffer } from "./actions";
import { Menu } from "./menu";

/** The first of these that is possible stands beside the menu. */
const LIKELIEST: Offer["kind"][] = ["stop", "resume", "report"];

/** What can be done by somebody, and what of it stands beside the menu. */
export function offersOf(run: RunDetail): { done: Offer[]; first: Offer | undefined } {
  const done = run.offers.filter((offer) => offer.done_by !== "nobody");
  // A run that ended too early to have a result needs more time.
  const likeliest: Offer["kind"][] = run.state === "complete" && run.no_best ? ["extend", ...LIKELIEST] : LIKELIEST;
  return { done, first: likeliest.map((kind) => done.find((offer) => offer.kind === kind)).find(Boolean) };
}

export function Offers({ controller, run }: { controller: Controller; run: RunDetail }) {
  const { host, form } = controller;
  const { done, first } = offersOf(run);
  const rest = done.filter((offer) => offer !== first);
  // What has a model can be compressed, and placed on tiers.
  const hasModel = run.offers.some(({ kind }) => kind === "compress");
  return (
    <div class="workbench-offers" role="group" aria-label="Actions for the run">
      {first ? <OfferButton offer={first} controller={controller} trial={null} /> : null}
      {host.openRun && form !== "wide" ? <OpenButton controller={controller} run={run} /> : null}
      {run.offers.length ? (
        <Menu label="More" title="Everything else that can be done with this run">
          {(close) => (
            <>
              {[false, true].map((isOfStore) => (
                <div key={String(isOfStore)} class="workbench-menu-part">
                  {rest
                    .filter((offer) => (offer.done_by === "store") === isOfStore)
                    .map((offer) => (
                      <OfferButton key={offer.kind} offer={offer} controller={controller} trial={null} onDone={close} />
                    ))}
                </div>
              ))}
              {hasModel && (form === "wide" || host.openTiers) ? (
                <button
                  type="button"
                  title="Place a model on devices and servers"
                  onClick={() => {
                    close();
                    controller.openTiers();
                  }}
                >
                  Tiers
                </button>
              ) : null}
              <button
                type="button"
                title="Use a terminal or Python instead"
                onClick={() => {
                  close();
                  controller.openDialog({ kind: "commands", offers: run.offers, title: run.name });
                }}
              >
                Commands
              </button>
            </>
          )}
        </Menu>
      ) : null}
    </div>
  );
}

/** In a notebook the run opens beside it, so that both are seen. */
function OpenButton({ controller, run }: { controller: Controller; run: RunDetail }) {
  const isBeside = controller.form === "output";
  return (
    <button
      type="button"
      title={isBeside ? "In a tab beside this notebook" : "In its own tab"}
      onClick={() => controller.host.openRun?.(run.run_id, isBeside)}
    >
      {isBeside ? "Open beside" : "Open"}
    </button>
  );
}

interface OfferButtonProps {
  offer: Offer;
  controller: Controller;
  trial: number | null;
  onDone?(): void;
}

export function OfferButton({ offer, controller, trial, onDone }: OfferButtonProps) {
  const asks = Boolean(offer.asks_first);
  // To resume takes seconds, in which the click would otherwise seem lost.
  const [isBusy, setBusy] = useState(false);
  const choose = () => {
    onDone?.();
    if (asks) return controller.openDialog({ kind: "offer", offer, trial });
    setBusy(true);
    void doOffer(controller, offer).finally(() => setBusy(false));
  };
  return (
    <button
      type="button"
      class={offer.dangerous ? "workbench-danger" : undefined}
      title={offer.done_by === "page" ? `Opens as a page; ${offer.command} writes it to a file` : offer.command}
      disabled={isBusy}
      onClick={choose}
    >
      {offer.label}
      {isBusy ? " …" : asks && !offer.label.endsWith("…") ? "…" : ""}
    </button>
  );
}
