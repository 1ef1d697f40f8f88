// Which columns the table of trials shows, and in which order.
import type { Controller } from "../controller";
import type { TrialTable } from "../types";
import { Menu } from "./menu";

/** The keys of the columns after number and state: those that were chosen, or all with values in them. */
export function shownKeys(table: TrialTable, chosen: readonly string[]): string[] {
  const keys = table.columns.map(({ key }) => key).filter((key) => key !== "number" && key !== "state");
  const found = chosen.filter((key) => keys.includes(key));
  const empty = new Set(table.columns.filter((column) => column.is_empty).map(({ key }) => key));
  return found.length ? found : keys.filter((key) => !empty.has(key));
}

/** Puts a column one place earlier or later among those that are shown. */
export function moved(keys: readonly string[], key: string, by: -1 | 1): string[] {
  const at = keys.indexOf(key);
  const to = at + by;
  if (at < 0 || to < 0 || to >= keys.length) return [...keys];
  const next = [...keys];
  [next[at], next[to]] = [next[to], next[at]];
  return next;
}

export function ColumnMenu({ controller, table }: { controller: Controller; table: TrialTable }) {
  const { view } = controller.state;
  const shown = shownKeys(table, view.table.columns);
  const choose = (columns: string[]) => controller.show({ table: { ...view.table, columns } });
  const labels = new Map(table.columns.map(({ key, label }) => [key, label]));
  const hidden = table.columns
    .map(({ key }) => key)
    .filter((key) => key !== "number" && key !== "state" && !shown.includes(key));
  return (
    <Menu label="Columns" title="Choose and order columns">
      {() => (
        <>
          {shown.map((key) => (
            <div key={key} class="workbench-column-choice">
              <label class="workbench-check">
                <input
                  type="checkbox"
                  checked
                  disabled={shown.length === 1}
                  onChange={() => choose(shown.filter((one) => one !== key))}
                />
                <bdi>{labels.get(key)}</bdi>
              </label>
              <button
                type="button"
                aria-label={`Move ${labels.get(key)} to the left`}
                disabled={shown[0] === key}
                onClick={() => choose(moved(shown, key, -1))}
              >
                ↑
              </button>
              <button
                type="button"
                aria-label={`Move ${labels.get(key)} to the right`}
                disabled={shown.at(-1) === key}
                onClick={() => choose(moved(shown, key, 1))}
              >
                ↓
              </button>
            </div>
          ))}
          {hidden.map((key) => (
            <label key={key} class="workbench-check">
              <input type="checkbox" checked={false} onChange={() => choose([...shown, key])} />
              <bdi>{labels.get(key)}</bdi>
            </label>
          ))}
          <button type="button" disabled={!view.table.columns.length} onClick={() => choose([])}>
            All with values
          </button>
        </>
      )}
    </Menu>
  );
}
