// The analysis of a run: small figures of the same trials on one page. A selection in one is seen in all of them,
// in the table and in the curves.
import { useMemo } from "preact/hooks";
import type { AnalysisState } from "../analysis_data";
import {
  brushedAxes,
  courseOf,
  distributionOf,
  frontOf,
  pairOf,
  parallelOf,
  sliceOf,
  type Looks,
} from "../analysis_drawings";
import { withRange } from "../brush";
import type { Controller } from "../controller";
import type { Drawing } from "../drawing";
import { formatCount, formatMetric } from "../format";
import { Card } from "./analysis_card";
import { Empty, ProblemNotice, Search } from "./components";
import { FigureBox } from "./figure_box";
import { ImportanceCard } from "./importance";
import { PlotBox } from "./plot_box";

const FINISHED = new Set(["complete", "stopped", "failed", "lost"]);
/** As `COLOURED` in `plots/colouring.py`, of those that the server draws. */
const COLOURED = new Set(["timeline"]);

export function Analysis({ controller }: { controller: Controller }) {
  const { run, view, analysis, problem, matching } = controller.state;
  if (!run) return <Empty title="Reading the run …" />;
  const hasTrials = Object.keys(run.counts).length > 0;
  if (!hasTrials && !run.figures.length) return <Empty title="Nothing to analyse yet" />;
  const wrong = problem?.field?.startsWith("table.") ?? false;
  const isMatched = matching?.trials && matching.text === view.table.text;
  return (
    <section class="workbench-analysis" aria-label="Analysis">
      {hasTrials ? (
        <>
          <div class="workbench-bar">
            <Search
              value={view.table.text}
              label="Filter trials"
              title="Words, or comparisons such as lr < 0.01; as in the table of trials"
              onInput={(text) => controller.filterTrials(text)}
            />
            {view.table.text ? (
              <button type="button" class="workbench-quiet" onClick={() => controller.filterTrials("")}>
                Show all
              </button>
            ) : null}
            {isMatched ? (
              <span class="workbench-muted">{formatCount(matching.trials?.length ?? 0, "trial")} match</span>
            ) : null}
            <ColourSelect controller={controller} />
            <label class="workbench-check">
              <input
                type="checkbox"
                checked={view.figureLogarithmic}
                onChange={(event) => controller.show({ figureLogarithmic: event.currentTarget.checked })}
              />
              logarithmic
            </label>
            <Key controller={controller} />
          </div>
          <ProblemNotice problem={wrong && problem ? { ...problem, field: null } : null} />
          {analysis ? <Cards controller={controller} data={analysis} /> : <Empty title="Reading the trials …" />}
        </>
      ) : null}
      <ServerFigure controller={controller} />
    </section>
  );
}

function ColourSelect({ controller }: { controller: Controller }) {
  const { analysis, view } = controller.state;
  if (!analysis?.axes.length) return null;
  return (
    <select
      aria-label="Colour"
      value={analysis.axes.some(({ name }) => name === view.figureColour) ? view.figureColour : ""}
      onChange={(event) => controller.show({ figureColour: event.currentTarget.value })}
    >
      <option value="">coloured by result</option>
      {analysis.axes.map(({ name }) => (
        <option key={name} value={name}>
          coloured by {name}
        </option>
      ))}
    </select>
  );
}

/** What the marks mean that there are. */
function Key({ controller }: { controller: Controller }) {
  const { analysis } = controller.state;
  if (!analysis) return null;
  const standings = new Set(analysis.standings);
  return (
    <span class="workbench-muted workbench-analysis-key">
      {analysis.bestTrial === null ? null : <Mark look="best" text={`best: trial ${analysis.bestTrial}`} />}
      {standings.has("complete") ? <Mark look="complete" text="complete" /> : null}
      {standings.has("pruned") ? <Mark look="pruned" text="pruned, at its last report" /> : null}
      {standings.has("no_result") ? <Mark look="no-result" text="breaks a limit or missed its target" /> : null}
      {analysis.numLeftOut ? <span>{formatCount(analysis.numLeftOut, "trial")} left out</span> : null}
    </span>
  );
}

function Mark({ look, text }: { look: string; text: string }) {
  return (
    <span>
      <i class={`workbench-mark workbench-mark-${look}`} aria-hidden="true" /> {text}
    </span>
  );
}

/** How trials look in all figures, the same until something of it changes. */
export function useLooks(controller: Controller, data: AnalysisState | null): Looks {
  const { view, matching } = controller.state;
  const { theme } = controller;
  const { figureColour, figureLogarithmic } = view;
  const filter = view.table.text;
  return useMemo(() => {
    const isKnown = matching?.text === filter && matching.trials;
    const chosen = [...view.chart.chosen];
    if (view.trial !== null && !chosen.includes(view.trial)) chosen.push(view.trial);
    return {
      theme,
      matching: isKnown ? new Set(matching.trials) : null,
      chosen,
      colour: data?.axes.find(({ name }) => name === figureColour) ?? null,
      logarithmic: figureLogarithmic,
      filter,
    };
  }, [theme, matching, filter, view.chart.chosen, view.trial, data, figureColour, figureLogarithmic]);
}

function Cards({ controller, data }: { controller: Controller; data: AnalysisState }) {
  const { view } = controller.state;
  const looks = useLooks(controller, data);
  const { axes, objectives, grids } = data;
  if (!data.trials.length) return <Empty title="No trial has finished yet" />;
  const metric = objectives[0].metric;
  const hasResult = data.standings.includes("complete");
  const parameters = `${axes.map(({ name }) => name).join(", ")} and ${metric}`;
  return (
    <div class="workbench-cards">
      <Fronts controller={controller} data={data} looks={looks} />
      {objectives.length === 1 ? <ImportanceCard controller={controller} /> : null}
      {axes.length > 1 ? (
        <Card title="Parallel coordinates" hint="Drag along an axis to filter trials. Click it to show all." isWide>
          <Drawn
            controller={controller}
            label={`Parallel coordinates of ${parameters}`}
            make={() => parallelOf(data, looks)}
            on={[data, looks]}
            onBrush={(index, range) => {
              const axis = brushedAxes(data)[index];
              controller.filterTrials(withRange(view.table.text, axis, range));
            }}
          />
        </Card>
      ) : null}
      {hasResult ? (
        <Card title="Best by trial">
          <Drawn
            controller={controller}
            label={`${metric} by trial, and the best so far`}
            make={() => courseOf(data, looks)}
            on={[data, looks]}
          />
        </Card>
      ) : null}
      {hasResult ? (
        <Card title="Distribution" hint="A steep part holds many trials.">
          <Drawn
            controller={controller}
            label={`Share of trials by ${metric}`}
            make={() => distributionOf(data, looks)}
            on={[data, looks]}
          />
        </Card>
      ) : null}
      {axes.map((axis) => (
        <Card key={axis.name} title={`${formatMetric(metric)} by ${axis.name}`}>
          <Drawn
            controller={controller}
            label={`${metric} by ${axis.name}`}
            make={() => sliceOf(data, axis, looks)}
            on={[data, axis, looks]}
          />
        </Card>
      ))}
      {hasResult && grids.length ? <Pairs controller={controller} data={data} looks={looks} /> : null}
    </div>
  );
}

interface FiguresProps {
  controller: Controller;
  data: AnalysisState;
  looks: Looks;
}

/** The front of each pair of objectives. */
export function Fronts({ controller, data, looks }: FiguresProps) {
  const { objectives } = data;
  const pairs = objectives.flatMap((_, second) =>
    objectives.slice(0, second).map((__, first): [number, number] => [first, second]),
  );
  return (
    <>
      {pairs.map(([first, second]) => (
        <Card
          key={`${first} ${second}`}
          title={`Front: ${objectives[second].metric} by ${objectives[first].metric}`}
          isWide
        >
          <Front controller={controller} data={data} looks={looks} first={first} second={second} />
        </Card>
      ))}
    </>
  );
}

export function Front({ controller, data, looks, first, second }: FiguresProps & { first: number; second: number }) {
  const [x, y] = [data.objectives[first], data.objectives[second]];
  return (
    <>
      <Drawn
        controller={controller}
        label={`${formatCount(data.front.size, "trial")} on the front of ${x.metric} and ${y.metric}`}
        make={() => frontOf(data, first, second, looks)}
        on={[data, first, second, looks]}
      />
      <p class="workbench-axis-title">
        <bdi>{y.title}</bdi> by <bdi>{x.title}</bdi>
      </p>
    </>
  );
}

function Pairs({ controller, data, looks }: FiguresProps) {
  const kind = controller.state.view.figurePairs;
  const metric = data.objectives[0].metric;
  return (
    <>
      {data.grids.map((grid, index) => {
        const [x, y] = [data.axes[grid.x], data.axes[grid.y]];
        return (
          <Card
            key={`${x.name} ${y.name}`}
            title={`${y.name} by ${x.name}`}
            aside={
              <select
                aria-label={`Kind of figure of ${y.name} by ${x.name}`}
                value={kind}
                onChange={(event) => controller.show({ figurePairs: event.currentTarget.value as "contour" | "rank" })}
              >
                <option value="contour">contour</option>
                <option value="rank">rank</option>
              </select>
            }
          >
            <Drawn
              controller={controller}
              label={`${kind === "contour" ? metric : `Rank by ${metric}`} over ${x.name} and ${y.name}`}
              make={() => pairOf(data, index, kind, looks)}
              on={[data, index, kind, looks]}
            />
            <p class="workbench-ramp">
              worst <i aria-hidden="true" /> best
            </p>
          </Card>
        );
      })}
    </>
  );
}

interface DrawnProps {
  controller: Controller;
  label: string;
  make(): Drawing;
  /** What the drawing is made of. */
  on: unknown[];
  onBrush?: Parameters<typeof PlotBox>[0]["onBrush"];
}

function Drawn({ controller, label, make, on, onBrush }: DrawnProps) {
  const drawing = useMemo(make, on);
  return (
    <PlotBox
      drawing={drawing}
      theme={controller.theme}
      label={label}
      onChoose={(key, add) => key && controller.chooseTrial(Number(key), add)}
      onBrush={onBrush}
    />
  );
}

/** Further figures, which Python draws. */
function ServerFigure({ controller }: { controller: Controller }) {
  const { run, view } = controller.state;
  if (!run?.figures.length) return null;
  const name = run.figures.includes(view.figure) ? view.figure : "";
  const colour = run.params.includes(view.figureColour) ? view.figureColour : "";
  return (
    <section class="workbench-figure-card workbench-figure-wide" aria-label="Further figures">
      <div class="workbench-bar">
        <h3>Further figures</h3>
        <select
          aria-label="Figure"
          value={name}
          onChange={(event) => controller.show({ figure: event.currentTarget.value })}
        >
          <option value="">none</option>
          {run.figures.map((one) => (
            <option key={one} value={one}>
              {one.replaceAll("_", " ")}
            </option>
          ))}
        </select>
      </div>
      {name ? (
        <FigureBox
          key={`${run.run_id}/${name}`}
          controller={controller}
          runId={run.run_id}
          name={name}
          live={!FINISHED.has(run.state)}
          colour={COLOURED.has(name) ? colour : ""}
          chosen={run.chosen_by_hand?.trial}
        />
      ) : null}
    </section>
  );
}
