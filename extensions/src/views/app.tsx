// How the views are put together: for a side bar, for a main area, for the output of a notebook cell.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Controller } from "../controller";
import type { Tab } from "../state";
import { TAB_NAMES, tabOf, tabsOf } from "../tabs";
import { Advice } from "./advice";
import { Analysis } from "./analysis";
import { Chart } from "./chart";
import { Result } from "./chosen_model";
import { Comparison } from "./comparison";
import { Dialogs } from "./dialogs";
import { Head, LOW } from "./run_header";
import { Log } from "./log";
import { Empty } from "./components";
import { Resources } from "./resources";
import { Runs } from "./runs";
import { StatusLine } from "./status_line";
import { Throughput } from "./throughput";
import { Tiers } from "./tiers";
import { Trial } from "./trial";
import { Trials } from "./trials";

export interface ViewProps {
  controller: Controller;
}

/** It is drawn once. Each view below it is drawn again when a slice of the state that it reads changes. */
export function App({ controller }: ViewProps) {
  return (
    <>
      <Body controller={controller} />
      <StatusLine controller={controller} />
      <Dialogs controller={controller} />
    </>
  );
}

function Body({ controller }: ViewProps) {
  if (controller.form === "output") return <Output controller={controller} />;
  if (controller.form === "panel") return <Panel controller={controller} />;
  return <Wide controller={controller} />;
}

function Output({ controller }: ViewProps) {
  return (
    <section class="workbench-main" aria-label="Run">
      <Head controller={controller} />
      <CurvesOrAdvice controller={controller} />
    </section>
  );
}

function Panel({ controller }: ViewProps) {
  const { run } = controller.state.view;
  return (
    <>
      <Runs controller={controller} />
      {run === null ? null : (
        <section class="workbench-main" aria-label="Run">
          <Head controller={controller} />
          <CurvesOrAdvice controller={controller} />
        </section>
      )}
    </>
  );
}

/** Where there are no tabs, what there is to see comes in one piece. */
function CurvesOrAdvice({ controller }: ViewProps) {
  const { trial } = controller.state.view;
  const { run } = controller.state;
  const isAdvised = run?.kind === "advice" && run.card;
  if (isAdvised || !tabsOf(controller.state).includes("curves")) return <Advice controller={controller} />;
  const hasResult = Boolean(run?.chosen ?? run?.candidates);
  // A cell has room for the answer and its models; curves are in the tab.
  if (hasResult && controller.form === "output") return <Result controller={controller} />;
  return (
    <>
      {hasResult ? <Result controller={controller} /> : null}
      <Chart controller={controller} />
      {trial === null ? <Trials controller={controller} /> : <Trial controller={controller} />}
    </>
  );
}

function Wide({ controller }: ViewProps) {
  const { run, runsTable } = controller.state.view;
  // In a low window the curves come first, and the list on request.
  const [isFolded, fold] = useState(() => run !== null && matchMedia(LOW).matches);
  if (runsTable.isShown) {
    return (
      <div class="workbench-columns workbench-columns-folded">
        <Runs controller={controller} />
      </div>
    );
  }
  return (
    <div class={`workbench-columns${isFolded ? " workbench-columns-folded" : ""}`}>
      <button
        type="button"
        class="workbench-fold"
        aria-expanded={!isFolded}
        title={isFolded ? "Show the list of runs" : "Hide the list of runs"}
        onClick={() => fold(!isFolded)}
      >
        <span aria-hidden="true">{isFolded ? "▸" : "◂"}</span> Runs
      </button>
      {isFolded ? null : <Runs controller={controller} />}
      <section class="workbench-main" aria-label="Run">
        {run === null && tabOf(controller.state) === "tiers" ? null : run === null ? (
          <Empty title="No run selected">
            <p>Choose one from the list, or start one.</p>
          </Empty>
        ) : (
          <Head controller={controller} />
        )}
        <Tabs controller={controller} />
        <TabBody controller={controller} />
      </section>
    </div>
  );
}

function Tabs({ controller }: ViewProps) {
  const { state } = controller;
  const tabs = tabsOf(state);
  const chosen = tabOf(state);
  const move = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = tabs[(tabs.indexOf(chosen) + by + tabs.length) % tabs.length];
    controller.show({ tab: next });
    const list = event.currentTarget as HTMLElement;
    list.querySelector<HTMLElement>(`[data-tab="${next}"]`)?.focus();
  };
  return (
    <div class="workbench-tabs" role="tablist" aria-label="Views of the run" onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab}
          type="button"
          role="tab"
          data-tab={tab}
          aria-selected={tab === chosen}
          tabIndex={tab === chosen ? 0 : -1}
          onClick={() => controller.show({ tab })}
        >
          {TAB_NAMES[tab]}
          {tab === "compare" && state.view.compared.length ? ` (${state.view.compared.length})` : ""}
        </button>
      ))}
    </div>
  );
}

function TabBody({ controller }: ViewProps) {
  const tab = tabOf(controller.state);
  return (
    <div class={`workbench-tab workbench-tab-${tab}`} role="tabpanel" aria-label={TAB_NAMES[tab]} key={tab}>
      {viewOf(tab, controller)}
    </div>
  );
}

function viewOf(tab: Tab, controller: Controller) {
  if (tab === "compare") return <Comparison controller={controller} />;
  if (tab === "resources") {
    return (
      <BesideTrial controller={controller}>
        <Resources controller={controller} />
      </BesideTrial>
    );
  }
  if (tab === "tiers") return <Tiers controller={controller} />;
  if (controller.state.view.run === null) return null;
  switch (tab) {
    case "result":
      return <Result controller={controller} />;
    case "curves":
      return <Curves controller={controller} />;
    case "throughput":
      return <Throughput controller={controller} />;
    case "analysis":
      return (
        <BesideTrial controller={controller}>
          <Analysis controller={controller} />
        </BesideTrial>
      );
    case "advice":
      return <Advice controller={controller} />;
    case "log":
      return <Log controller={controller} />;
  }
}

function Curves({ controller }: ViewProps) {
  return (
    <BesideTrial controller={controller}>
      <Chart controller={controller} />
      <Trials controller={controller} />
    </BesideTrial>
  );
}

/** The trial that was chosen stands beside what it was chosen in. */
function BesideTrial({ controller, children }: ViewProps & { children: ComponentChildren }) {
  return (
    <div class="workbench-beside">
      <div class="workbench-beside-main">{children}</div>
      {controller.state.view.trial === null ? null : <Trial controller={controller} />}
    </div>
  );
}
