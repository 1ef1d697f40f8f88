// Why trials of the run failed: each kind of failure once, the most frequent first.
import type { Controller } from "../controller";
import { formatCount } from "../format";
import type { RunDetail } from "../types";

export function Failures({ controller, run }: { controller: Controller; run: RunDetail }) {
  if (!run.failures.length) return null;
  const total = run.failures.reduce((sum, one) => sum + one.num_trials, 0);
  return (
    <details class="workbench-failures" open={run.state === "failed"} key={run.run_id}>
      <summary>
        {formatCount(total, "trial")} failed
        {run.failures.length > 1 ? `, in ${formatCount(run.failures.length, "way")}` : ""}
      </summary>
      <table aria-label="Failures">
        <thead>
          <tr>
            <th scope="col">reason</th>
            <th scope="col">trials</th>
            <th scope="col">message</th>
          </tr>
        </thead>
        <tbody>
          {run.failures.map((one) => (
            <tr key={`${one.reason} ${one.message} ${one.place}`}>
              <th scope="row">{one.reason}</th>
              <td class="workbench-number">
                {one.trials.map((trial) => (
                  <button
                    key={trial}
                    type="button"
                    class="workbench-link"
                    aria-label={`Show trial ${trial}`}
                    onClick={() => controller.chooseTrial(trial)}
                  >
                    {trial}
                  </button>
                ))}
                {one.num_trials > one.trials.length ? ` and ${one.num_trials - one.trials.length} more` : ""}
              </td>
              <td>
                <bdi>{one.message}</bdi>
                {one.place ? (
                  <small title={one.place}>
                    {" "}
                    <bdi>{fileOf(one.place)}</bdi>
                  </small>
                ) : null}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

/** A place without the folders of its file. */
function fileOf(place: string): string {
  return place.split(/[\\/]/).at(-1) ?? place;
}
