// Several runs beside each other: the best so far over time.
import { useMemo } from "preact/hooks";
import type { Controller } from "../controller";
import { formatCount, formatDuration, formatNumber } from "../format";
import type { Drawing } from "../drawing";
import type { ComparisonCurve } from "../state";
import type { Theme } from "../theme";
import { PlotBox } from "./plot_box";
import { Empty } from "./components";

export function Comparison({ controller }: { controller: Controller }) {
  const { state, theme } = controller;
  const drawing = useMemo(() => drawingOf(state.compared, theme), [state.comparedVersion, theme]);
  if (!state.view.compared.length) {
    return (
      <Empty title="No runs to compare">
        <p>Select “compare” for two or more runs in the list.</p>
      </Empty>
    );
  }
  return (
    <section class="workbench-comparison" aria-label="Comparison of runs">
      <PlotBox
        drawing={drawing}
        theme={theme}
        label={`Best so far of ${formatCount(state.compared.length, "run")} over time`}
        onChoose={(runId) => controller.openRun(runId)}
      />
      <div class="workbench-compared-box" tabIndex={0} role="region" aria-label="Compared runs">
        <table class="workbench-compared">
          <thead>
            <tr>
              <th scope="col">run</th>
              <th scope="col">metric</th>
              <th scope="col">best so far</th>
              <th scope="col">reached after</th>
              <td />
            </tr>
          </thead>
          <tbody>
            {state.view.compared.map((runId) => (
              <Row key={runId} runId={runId} controller={controller} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ runId, controller }: { runId: string; controller: Controller }) {
  const { state, theme } = controller;
  const index = state.compared.findIndex(({ run }) => run.run_id === runId);
  const held = state.compared[index];
  const last = held ? held.curve.length - 1 : -1;
  const remove = () => controller.show({ compared: state.view.compared.filter((one) => one !== runId) });
  return (
    <tr>
      <th scope="row">
        <i
          class="workbench-key"
          style={{ background: index < 0 ? "transparent" : colourOf(index, theme) }}
          aria-hidden="true"
        />
        <button type="button" class="workbench-link workbench-compared-name" onClick={() => controller.openRun(runId)}>
          <bdi>{held?.run.name ?? runId}</bdi>
        </button>
      </th>
      <td>
        <bdi>{held?.run.metric ?? "–"}</bdi>
      </td>
      <td class="workbench-number">{formatNumber(last < 0 ? null : held.curve.y[last])}</td>
      <td class="workbench-number">{formatDuration(held ? reachedAfter_s(held) : null)}</td>
      <td>
        <button
          type="button"
          class="workbench-quiet"
          aria-label={`Do not compare ${held?.run.name ?? runId}`}
          onClick={remove}
        >
          ✕
        </button>
      </td>
    </tr>
  );
}

/** When the last best value was first there. */
function reachedAfter_s({ curve }: ComparisonCurve): number | null {
  let index = curve.length - 1;
  if (index < 0) return null;
  while (index > 0 && curve.y[index - 1] === curve.y[index]) index -= 1;
  return curve.x[index];
}

function colourOf(index: number, theme: Theme): string {
  return theme.categories[index % theme.categories.length];
}

function drawingOf(compared: ComparisonCurve[], theme: Theme): Drawing {
  return {
    lines: compared.map(({ run, curve }, index) => ({
      key: run.run_id,
      label: run.name,
      curve,
      colour: colourOf(index, theme),
      width: 2.2,
      opacity: 1,
      stepped: true,
    })),
    band: null,
    target: null,
    xTitle: "time since the run started",
    yName: [...new Set(compared.map(({ run }) => run.metric))].join(", "),
    yRange: null,
    xKind: "seconds",
    logarithmic: false,
  };
}
