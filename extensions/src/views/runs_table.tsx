// The runs as a table: columns of parameters and tags that a person chooses, and groups with the best of each.
import { useRef } from "preact/hooks";
import type { Controller } from "../controller";
import { formatAge, formatCount, formatDuration, formatNumber, formatValue } from "../format";
import type { RunsTable as Settings } from "../state";
import type { RunGroup, RunItem, RunList } from "../types";
import { Menu } from "./menu";
import { Spacer, StateMark } from "./components";
import { windowAround } from "./window";

/** Height of a row, as in the style sheet: rows that are not on the screen are only space. */
const ROW_PX = 28;
/** As in the protocol. */
const MAX_PARAMS = 20;

interface TableProps {
  controller: Controller;
  runs: RunList;
}

export function RunsTable({ controller, runs }: TableProps) {
  const { view } = controller.state;
  const { group, member } = view.runsTable;
  const change = (part: Partial<Settings>) => controller.show({ runsTable: { ...view.runsTable, ...part } });
  return (
    <>
      <div class="workbench-bar">
        <label class="workbench-check">
          Group by
          <select
            value={group}
            onChange={(event) => change({ group: event.currentTarget.value, member: null })}
            aria-label="Group runs by"
          >
            <option value="">nothing</option>
            <option value="name">experiment</option>
            <option value="tag">tag</option>
            {(runs.params ?? []).map((name) => (
              <option key={name} value={`params.${name}`}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <ColumnMenu settings={view.runsTable} known={runs.params ?? []} onChange={change} />
        {group && member !== null ? (
          <button type="button" onClick={() => change({ member: null })}>
            {titleOf(member, group)} ✕
          </button>
        ) : null}
      </div>
      {group && member === null ? (
        <Groups controller={controller} groups={runs.groups ?? []} group={group} onChoose={change} />
      ) : (
        <Rows controller={controller} runs={runs} />
      )}
    </>
  );
}

interface ColumnMenuProps {
  settings: Settings;
  known: readonly string[];
  onChange(part: Partial<Settings>): void;
}

function ColumnMenu({ settings: { params, hasTags }, known, onChange }: ColumnMenuProps) {
  const names = [...known, ...params.filter((name) => !known.includes(name))];
  return (
    <Menu label="Columns" title="Columns of the table">
      {() => (
        <div class="workbench-menu-part">
          <label class="workbench-check">
            <input
              type="checkbox"
              checked={hasTags}
              onChange={(event) => onChange({ hasTags: event.currentTarget.checked })}
            />
            tags
          </label>
          {names.map((name) => (
            <label class="workbench-check" key={name}>
              <input
                type="checkbox"
                checked={params.includes(name)}
                disabled={!params.includes(name) && params.length >= MAX_PARAMS}
                onChange={(event) =>
                  onChange({
                    params: event.currentTarget.checked ? [...params, name] : params.filter((one) => one !== name),
                  })
                }
              />
              <bdi>{name}</bdi>
            </label>
          ))}
        </div>
      )}
    </Menu>
  );
}

/** What a group is called: by the value that its runs share. */
function titleOf(member: string, group: string): string {
  if (group === "tag") return member || "no tag";
  if (group === "name") return member;
  const name = group.slice(group.indexOf(".") + 1);
  return member ? `${name} = ${member}` : `no ${name}`;
}

interface GroupsProps {
  controller: Controller;
  groups: readonly RunGroup[];
  group: string;
  onChoose(part: Partial<Settings>): void;
}

function Groups({ controller, groups, group, onChoose }: GroupsProps) {
  return (
    <div class="workbench-table workbench-runs-table" role="region" aria-label="Groups of runs" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">group</th>
            <th scope="col" class="workbench-numeric">
              runs
            </th>
            <th scope="col">metric</th>
            <th scope="col" class="workbench-numeric">
              best
            </th>
            <th scope="col">by</th>
          </tr>
        </thead>
        <tbody>
          {groups.map(({ member, num_runs, best }) => (
            <tr key={member}>
              <th scope="row">
                <button type="button" class="workbench-link" onClick={() => onChoose({ member })}>
                  {titleOf(member, group)}
                </button>
              </th>
              <td class="workbench-numeric">{formatCount(num_runs)}</td>
              <td>
                <bdi>{best?.metric}</bdi>
              </td>
              <td class="workbench-numeric">{best ? formatNumber(best.value ?? null) : "–"}</td>
              <td>
                {best ? (
                  <button type="button" class="workbench-link" onClick={() => showRun(controller, best)}>
                    <bdi>{best.name}</bdi>
                  </button>
                ) : (
                  "–"
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A run takes the place of the table, which the list offers again. */
function showRun(controller: Controller, { run_id }: RunItem): void {
  controller.show({ runsTable: { ...controller.state.view.runsTable, isShown: false } });
  controller.selectRun(run_id);
}

function Rows({ controller, runs }: TableProps) {
  const { view, nowUnixS } = controller.state;
  const { params, hasTags } = view.runsTable;
  const box = useRef<HTMLDivElement>(null);
  const offset = runs.offset ?? 0;
  const below = Math.max(0, runs.total - offset - runs.items.length);
  const columns = 8 + params.length + (hasTags ? 1 : 0);
  const scrolled = (list: HTMLElement) => {
    const next = windowAround(list, ROW_PX, runs.total, controller.runsWindow);
    if (next) controller.showRunsWindow(next);
  };
  return (
    <div
      class="workbench-table workbench-runs-table"
      role="region"
      aria-label="Table of runs"
      tabIndex={0}
      ref={box}
      onScroll={(event) => scrolled(event.currentTarget)}
    >
      <table>
        <thead>
          <tr>
            <th scope="col">run</th>
            <th scope="col">state</th>
            <th scope="col">metric</th>
            <th scope="col" class="workbench-numeric">
              best
            </th>
            <th scope="col" class="workbench-numeric">
              trials
            </th>
            <th scope="col" class="workbench-numeric">
              run time
            </th>
            <th scope="col" class="workbench-numeric">
              cost
            </th>
            <th scope="col">age</th>
            {hasTags ? <th scope="col">tags</th> : null}
            {params.map((name) => (
              <th scope="col" key={name}>
                <bdi>{name}</bdi>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Spacer px={offset * ROW_PX} columns={columns} />
          {runs.items.map((item) => (
            <tr key={item.run_id} class={item.run_id === view.run ? "workbench-chosen" : undefined}>
              <th scope="row">
                <button
                  type="button"
                  class="workbench-link"
                  title={item.run_id}
                  onClick={() => showRun(controller, item)}
                >
                  <bdi>{item.name}</bdi>
                </button>
              </th>
              <td>
                <StateMark state={item.state} />
              </td>
              <td>
                <bdi>{item.value == null ? "" : item.metric}</bdi>
              </td>
              <td class="workbench-numeric" title={item.best ?? undefined}>
                {item.value == null ? (item.best ?? "–") : formatNumber(item.value)}
              </td>
              <td class="workbench-numeric">{item.num_trials ?? "–"}</td>
              <td class="workbench-numeric">{item.elapsed_s == null ? "–" : formatDuration(item.elapsed_s)}</td>
              <td class="workbench-numeric">{item.cost_text ?? "–"}</td>
              <td>{formatAge(nowUnixS - item.created_unix_s)}</td>
              {hasTags ? (
                <td>
                  {(item.tags ?? []).map((tag) => (
                    <span key={tag} class="workbench-tag">
                      <bdi>{tag}</bdi>
                    </span>
                  ))}
                </td>
              ) : null}
              {params.map((name) => (
                <td key={name}>
                  <bdi>{item.params && name in item.params ? formatValue(item.params[name]) : "–"}</bdi>
                </td>
              ))}
            </tr>
          ))}
          <Spacer px={below * ROW_PX} columns={columns} />
        </tbody>
      </table>
    </div>
  );
}
