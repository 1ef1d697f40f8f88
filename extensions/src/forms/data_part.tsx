// The data: chosen or named, sampled, counted, and its loading speed compared with what training needs.
import { formatCount, formatNumber, formatPercent, formatRate } from "../format";
import { Chooser } from "./chooser";
import { fieldsOf, SectionFields } from "./fields";
import { Fact } from "./model_part";
import type { Json, Sample } from "./message_types";
import type { DataSummary } from "../types";
import { AsyncResult } from "./async_result";
import { problemsOf } from "./problems";
import { Group, Sentence, useQuery, type FormProps } from "./text_field";

export function DataPart({ form }: FormProps) {
  const state = form.state;
  const { data } = state.document;
  const of = data ? JSON.stringify(data) : null;
  const ask = () => form.query("data", { of });
  // What is wrong stands under its field; nothing can be read until it is right.
  const isWrong = problemsOf(state, "data").length > 0;
  useQuery(of === null || isWrong ? null : JSON.stringify([state.is_experiment, of]), ask);
  const answer = form.answer("data");
  const section = state.sections.find((one) => one.name === "data");
  return (
    <>
      <Chooser
        form={form}
        path="data"
        label="Data"
        offered={state.datasets}
        hint="One of these, the name of a function defined in this notebook, or package.module:function."
      />
      {section && fieldsOf(section).length ? (
        <Group title="Data settings">
          <SectionFields form={form} section={section} />
        </Group>
      ) : null}
      {data && !isWrong ? (
        <Group title="Contents">
          <AsyncResult answer={answer} working="Reading the data …" onRetry={ask}>
            {(result) => (answer?.resultArguments.of === of ? <Preview result={result} /> : null)}
          </AsyncResult>
        </Group>
      ) : null}
    </>
  );
}

function Preview({ result }: { result: DataSummary }) {
  const { class_counts, class_names } = result;
  return (
    <>
      {result.warnings.map((warning) => (
        <p class="workbench-notice" key={warning}>
          <Sentence text={warning} />
        </p>
      ))}
      <dl class="workbench-facts workbench-form-facts">
        <Fact label="Task" value={result.task.replaceAll("_", " ")} />
        {result.input_shape ? <Fact label="Input shape" value={result.input_shape.join(" × ")} /> : null}
        <Speed result={result} />
      </dl>
      {(result.contents ?? []).map((sentence) => (
        <p class="workbench-hint" key={sentence}>
          {sentence}
        </p>
      ))}
      <Split sizes={result.sizes} />
      <Samples samples={result.samples} names={class_names} />
      {class_counts ? (
        <Balance
          counts={class_counts}
          names={class_names}
          numCounted={result.num_counted ?? null}
          numSamples={result.sizes.train}
        />
      ) : null}
      {result.target_histogram ? <Targets histogram={result.target_histogram} /> : null}
    </>
  );
}

/** Comes first, because slow loading limits every trial. */
function Speed({ result: { load_samples_per_s: load, needed_samples_per_s: needed } }: { result: DataSummary }) {
  if (load == null) return null;
  return (
    <>
      <Fact label="Loading speed" value={`${formatRate(load)} samples/s`} />
      {needed == null ? null : (
        <Fact
          label="Training needs"
          value={`${formatRate(needed)} samples/s: ${load >= needed ? "fast enough" : `${formatNumber(needed / load)} times too slow`}`}
        />
      )}
    </>
  );
}

function Split({ sizes }: { sizes: DataSummary["sizes"] }) {
  const parts = Object.entries(sizes).filter((entry): entry is [string, number] => typeof entry[1] === "number");
  return (
    <div class="workbench-parts">
      <h4>Split</h4>
      <div class="workbench-parts-bar" aria-hidden="true">
        {parts.map(([name, size], at) => (
          <div key={name} style={{ flexGrow: size, background: `var(--workbench-category-${at + 1})` }} />
        ))}
      </div>
      <dl>
        {parts.map(([name, size], at) => (
          <div key={name}>
            <dt>
              <i style={{ background: `var(--workbench-category-${at + 1})` }} />
              {name}
            </dt>
            <dd>{formatCount(size)}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

interface BalanceProps {
  counts: number[];
  names: string[] | null;
  /** How many samples were counted, and how many there are. */
  numCounted: number | null;
  numSamples: number;
}

function Balance({ counts, names, numCounted, numSamples }: BalanceProps) {
  const most = Math.max(...counts, 1);
  const total = counts.reduce((sum, one) => sum + one, 0) || 1;
  return (
    <div>
      <h4>
        Classes of the training samples
        {numCounted !== null && numCounted < numSamples ? `, ${formatCount(numCounted)} of them counted` : ""}
      </h4>
      <ul class="workbench-form-bars workbench-form-classes">
        {counts.map((count, at) => (
          <li key={at}>
            <bdi title={nameOf(at, names)}>{nameOf(at, names)}</bdi>
            <span class="workbench-form-bar" aria-hidden="true">
              <span style={{ inlineSize: `${(count / most) * 100}%` }} />
            </span>
            <span class="workbench-number">
              {formatCount(count)} · {formatPercent(count / total)}
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The distribution of the targets of a regression. */
function Targets({ histogram: { edges, counts } }: { histogram: NonNullable<DataSummary["target_histogram"]> }) {
  const most = Math.max(...counts, 1);
  const ends = [formatNumber(edges[0]), formatNumber(edges.at(-1))];
  return (
    <div dir="ltr">
      <h4>Targets of the training samples</h4>
      <svg
        class="workbench-form-targets"
        viewBox={`0 0 ${counts.length} 100`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Targets from ${ends[0]} to ${ends[1]}`}
      >
        {counts.map((count, at) => (
          <rect key={at} x={at + 0.05} width={0.9} y={100 - (count / most) * 98} height={(count / most) * 98} />
        ))}
      </svg>
      <div class="workbench-form-ends" aria-hidden="true">
        <span>{ends[0]}</span>
        <span>{ends[1]}</span>
      </div>
    </div>
  );
}

function Samples({ samples, names }: { samples: Sample[]; names: string[] | null }) {
  const images = samples.filter((one) => one.kind === "image");
  const rows = samples.filter((one) => one.kind === "row");
  const texts = samples.filter((one) => one.kind === "text");
  return (
    <div>
      <h4>Samples</h4>
      {images.length ? (
        <ul class="workbench-form-images">
          {images.map((one, at) => (
            <li key={at}>
              <img src={one.png} alt={`Sample of class ${targetOf(one.target, names)}`} />
              <span>{targetOf(one.target, names)}</span>
            </li>
          ))}
        </ul>
      ) : null}
      {rows.length ? <Rows rows={rows} names={names} /> : null}
      {texts.map((one, at) => (
        <blockquote class="workbench-form-text-sample" key={at} dir="auto">
          {one.text}
          {one.target == null ? null : <cite>{targetOf(one.target, names)}</cite>}
        </blockquote>
      ))}
    </div>
  );
}

function Rows({ rows, names }: { rows: Extract<Sample, { kind: "row" }>[]; names: string[] | null }) {
  const columns = Object.keys(rows[0].cells);
  return (
    <div class="workbench-form-table" tabIndex={0} role="group" aria-label="Sample rows">
      <table>
        <thead>
          <tr>
            <th scope="col">target</th>
            {columns.map((column) => (
              <th scope="col" key={column}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={at}>
              <th scope="row">{targetOf(row.target, names)}</th>
              {columns.map((column) => (
                <td key={column}>{cellOf(row.cells[column])}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function cellOf(value: Json): string {
  return typeof value === "number" ? formatNumber(value) : value === null ? "–" : String(value);
}

function targetOf(target: Json, names: string[] | null): string {
  return typeof target === "number" && Number.isInteger(target) && names ? nameOf(target, names) : cellOf(target);
}

function nameOf(at: number, names: string[] | null): string {
  return names?.[at] || String(at);
}
