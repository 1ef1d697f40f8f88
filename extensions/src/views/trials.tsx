// The table of trials. Only the rows on the screen exist; the server sorts, filters and sends windows.
import { useEffect, useRef } from "preact/hooks";
import type { Controller } from "../controller";
import { formatCell, formatCount } from "../format";
import { type TrialState, type ViewState } from "../state";
import type { TableColumn, TrialTable, TrialRow } from "../types";
import { saveAs } from "./actions";
import { ColumnMenu, shownKeys } from "./column_menu";
import { Empty, ProblemNotice, Search, Spacer, StateFilter, StateMark } from "./components";
import { windowAround } from "./window";

const TRIAL_STATES: readonly TrialState[] = ["waiting", "running", "complete", "pruned", "stopped", "failed"];
const ROW_PX = 27;
const HEAD_PX = 30;

export function Trials({ controller }: { controller: Controller }) {
  const { table, view, problem } = controller.state;
  // What is wrong with the filter stands below it; the rows of the filter before would be misleading.
  const wrong = problem?.field?.startsWith("table.") ?? false;
  const change = (part: Partial<ViewState["table"]>) => controller.show({ table: { ...view.table, ...part } });
  const filtered = view.table.text !== "" || view.table.states.length > 0;
  return (
    <section class="workbench-trials" aria-label="Trials">
      {controller.form === "output" ? null : (
        <div class="workbench-bar">
          <h2>Trials</h2>
          {table ? (
            <span class="workbench-muted workbench-number">
              {formatCount(table.total)}
              {table.reading ? ` so far: ${table.reading}` : ""}
            </span>
          ) : null}
          <span class="workbench-gap" />
          <Search
            label="Filter trials"
            title="Words, and comparisons such as lr < 0.01 or state = pruned"
            value={view.table.text}
            onInput={(text) => change({ text })}
          />
          <StateFilter
            label="State of trials"
            states={TRIAL_STATES}
            chosen={view.table.states}
            onChange={(states) => change({ states })}
          />
          <button
            type="button"
            aria-pressed={view.table.sort === "rank"}
            onClick={() => change({ sort: view.table.sort === "rank" ? "number" : "rank", descending: false })}
          >
            Best first
          </button>
          {table ? <ColumnMenu controller={controller} table={table} /> : null}
          <button type="button" title="Save the trials that match as CSV" onClick={() => saveCsv(controller)}>
            CSV
          </button>
        </div>
      )}
      <ProblemNotice problem={wrong && problem ? { ...problem, field: null } : null} />
      {table && table.total && !wrong ? <Table controller={controller} table={table} /> : null}
      {table && !table.total && !wrong ? (
        <Empty title={filtered ? "No trial matches" : "No trials yet"}>
          {filtered ? (
            <button type="button" onClick={() => change({ text: "", states: [] })}>
              Show all
            </button>
          ) : null}
          {!filtered && controller.state.run?.latest ? <p>{controller.state.run.latest}</p> : null}
        </Empty>
      ) : null}
      {table ? null : <Empty title="Reading the trials …" />}
    </section>
  );
}

function Table({ controller, table }: { controller: Controller; table: TrialTable }) {
  const { view } = controller.state;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (box.current) box.current.scrollTop = 0;
  }, [view.run, view.table]);
  const columns = columnsOf(table, view.table.columns);
  // The best trial stays in sight, above its place among the others.
  const isMean = (table.best?.num_repeats ?? 1) > 1;
  const best = isMean || table.rows[0]?.number !== table.best?.number ? table.best : null;
  const rows = isMean ? table.rows : table.rows.filter((row) => row.number !== best?.number);
  // What stands first leaves its place to the spacer, so that nothing jumps while the table is scrolled.
  const below = Math.max(0, table.total - table.offset - rows.length);
  return (
    <div
      ref={box}
      class="workbench-table"
      tabIndex={0}
      role="region"
      aria-label="Table of trials"
      onScroll={(event) => scrolled(controller, event.currentTarget)}
    >
      <table aria-rowcount={table.total + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <Header controller={controller} column={{ key: "number", label: "trial", kind: "number" }} />
            <Header controller={controller} column={{ key: "state", label: "state", kind: "state" }} />
            {columns.map((column) => (
              <Header key={column.key} controller={controller} column={column} />
            ))}
          </tr>
        </thead>
        {best ? (
          <tbody class="workbench-best-row">
            <Row row={best} columns={columns} controller={controller} index={0} />
          </tbody>
        ) : null}
        <tbody>
          <Spacer px={table.offset * ROW_PX} columns={columns.length + 2} />
          {rows.map((row, index) => (
            <Row key={row.number} row={row} columns={columns} controller={controller} index={table.offset + index} />
          ))}
          <Spacer px={below * ROW_PX} columns={columns.length + 2} />
        </tbody>
      </table>
    </div>
  );
}

function saveCsv(controller: Controller): void {
  const { run, table } = controller.state.view;
  if (run === null) return;
  saveAs(controller, `runs/${encodeURIComponent(run)}/trials.csv`, `${run}-trials.csv`, table);
}

interface ShownColumn extends TableColumn {
  /** Its place among the cells of a row. */
  index: number;
  /** Numbers stand at the end of their column, so that their digits stand below each other. */
  numeric: boolean;
}

/** The columns after number and state: those that were chosen, or all with values in them. */
function columnsOf(table: TrialTable, chosen: readonly string[]): ShownColumn[] {
  const all = table.columns.map((column, index) => ({ ...column, index, numeric: isNumeric(table, column, index) }));
  return shownKeys(table, chosen).flatMap((key) => all.filter((column) => column.key === key));
}

function isNumeric(table: TrialTable, column: TableColumn, index: number): boolean {
  if (column.kind === "value" || column.kind === "progress") return true;
  return table.rows.some(({ cells }) => typeof cells[index] === "number");
}

function scrolled(controller: Controller, box: HTMLElement): void {
  const { table } = controller.state;
  if (!table) return;
  const next = windowAround(box, ROW_PX, table.total, controller.window, HEAD_PX);
  if (next) controller.showWindow(next);
}

interface HeaderProps {
  controller: Controller;
  column: TableColumn & { numeric?: boolean };
}

function Header({ controller, column }: HeaderProps) {
  const { view } = controller.state;
  const sorted = view.table.sort === column.key;
  const order = sorted ? (view.table.descending ? "descending" : "ascending") : "none";
  const sort = () => {
    // The best values stand first at the first click, wherever the largest are declared to be the best.
    const descending = sorted ? !view.table.descending : column.goal === "maximize";
    controller.show({ table: { ...view.table, sort: column.key, descending } });
  };
  return (
    <th
      scope="col"
      aria-sort={order}
      class={column.numeric ? "workbench-numeric" : undefined}
      title={column.meaning || undefined}
    >
      <button type="button" onClick={sort}>
        <bdi>{column.label}</bdi>
        <span aria-hidden="true">{sorted ? (view.table.descending ? "▾" : "▴") : ""}</span>
      </button>
    </th>
  );
}

interface RowProps {
  row: TrialRow;
  columns: ShownColumn[];
  controller: Controller;
  index: number;
}

function Row({ row, columns, controller, index }: RowProps) {
  const { view } = controller.state;
  const chosen = row.number === view.trial || view.chart.chosen.includes(row.number);
  const choose = (event: MouseEvent) => {
    const add = event.ctrlKey || event.metaKey || event.shiftKey;
    controller.chooseTrial(!add && row.number === view.trial ? null : row.number, add);
  };
  const classes = [chosen ? "workbench-chosen" : "", row.is_best ? "workbench-best" : ""].join(" ");
  return (
    <tr class={classes} aria-rowindex={index + 2} onClick={choose}>
      <th scope="row">
        <button type="button" class="workbench-link" aria-pressed={chosen} aria-label={`Trial ${row.number}`}>
          {row.number}
        </button>
        {row.is_best ? (
          <span class="workbench-star" title="best" role="img" aria-label="best">
            ★
          </span>
        ) : null}
        {row.is_chosen ? (
          <span class="workbench-by-hand" title="chosen by hand" role="img" aria-label="chosen by hand">
            ✔
          </span>
        ) : null}
        {(row.num_repeats ?? 1) > 1 ? <small class="workbench-muted">mean of {row.num_repeats}</small> : null}
      </th>
      <td>
        <StateMark state={row.state} reason={row.reason} />
      </td>
      {columns.map((column) => (
        <Cell key={column.key} cell={row.cells[column.index]} column={column} />
      ))}
    </tr>
  );
}

function Cell({ cell, column }: { cell: TrialRow["cells"][number]; column: ShownColumn }) {
  const text = formatCell(cell, column.format);
  const classes = [column.numeric ? "workbench-numeric" : "", cell == null ? "workbench-absent" : ""].join(" ");
  return (
    <td class={classes} title={text.length > 24 ? text : undefined}>
      <bdi>{text}</bdi>
    </td>
  );
}
