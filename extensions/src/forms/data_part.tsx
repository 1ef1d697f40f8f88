// The data: chosen or pointed to, looked at, counted, and timed against what training needs.
import { formatNumber } from "../format";
import { Chooser } from "./chooser";
import { fieldsOf, SectionFields } from "./fields";
import { Fact } from "./model_part";
import type { DataPicture, Json, Sample } from "./protocol";
import { OldPicture, Slowly } from "./slowly";
import { Group, useAsked, type FormProps } from "./typed";
import { formatCount } from "./words";

export function DataPart({ form }: FormProps) {
  const state = form.state!;
  const { data } = state.document;
  useAsked(data ? JSON.stringify([state.is_experiment, data]) : null, () => form.ask("data"));
  const section = state.sections.find((one) => one.name === "data");
  return (
    <>
      <Chooser
        form={form}
        path="data"
        label="Data"
        offered={state.datasets}
        hint="One of these, a function of this notebook by its name once its cell has run, or package.module:function."
      />
      {section && fieldsOf(section).length ? (
        <Group title="Settings of the data">
          <SectionFields form={form} section={section} />
        </Group>
      ) : null}
      {data ? (
        <Group title="What is in it">
          <OldPicture form={form} />
          <Slowly held={form.part("data")} working="Reading the data …" again={() => form.ask("data")}>
            {(picture) => <Preview picture={picture} />}
          </Slowly>
        </Group>
      ) : null}
    </>
  );
}

function Preview({ picture }: { picture: DataPicture }) {
  const { class_counts, class_names } = picture;
  return (
    <>
      {picture.warnings.map((warning) => (
        <p class="workbench-notice" key={warning}>
          {warning}
        </p>
      ))}
      <dl class="workbench-facts workbench-form-facts">
        <Fact label="Task" value={picture.task.replaceAll("_", " ")} />
        {picture.input_shape ? <Fact label="Input of a sample" value={picture.input_shape.join(" × ")} /> : null}
        <Speed picture={picture} />
      </dl>
      <Split sizes={picture.sizes} />
      <Samples samples={picture.samples} names={class_names} />
      {class_counts ? <Balance counts={class_counts} names={class_names} numCounted={picture.num_counted ?? null} numSamples={picture.sizes.train} /> : null}
      {picture.target_histogram ? <Targets histogram={picture.target_histogram} /> : null}
    </>
  );
}

/** Reading that is slower than training needs is what a person should see first. */
function Speed({ picture: { load_samples_per_s: load, needed_samples_per_s: needed } }: { picture: DataPicture }) {
  if (load == null) return null;
  return (
    <>
      <Fact label="Read" value={`${formatCount(load)} samples a second`} />
      {needed == null ? null : (
        <Fact
          label="Training needs"
          value={`${formatCount(needed)} a second: ${load >= needed ? "fast enough" : `${formatNumber(needed / load)} times too slow`}`}
        />
      )}
    </>
  );
}

function Split({ sizes }: { sizes: DataPicture["sizes"] }) {
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
            <dd>{size.toLocaleString("en")}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

interface BalanceProps {
  counts: number[];
  names: string[] | null;
  /** How many were looked at, of how many. */
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
        {numCounted !== null && numCounted < numSamples ? `, of which ${numCounted.toLocaleString("en")} were looked at` : ""}
      </h4>
      <ul class="workbench-form-bars workbench-form-classes">
        {counts.map((count, at) => (
          <li key={at}>
            <bdi title={nameOf(at, names)}>{nameOf(at, names)}</bdi>
            <span class="workbench-form-bar" aria-hidden="true">
              <span style={{ inlineSize: `${(count / most) * 100}%` }} />
            </span>
            <span class="workbench-number">
              {count.toLocaleString("en")} · {Math.round((count / total) * 100)} %
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** How the numbers lie that a regression is to say. */
function Targets({ histogram: { edges, counts } }: { histogram: NonNullable<DataPicture["target_histogram"]> }) {
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
      <h4>Some samples</h4>
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
    <div class="workbench-form-table" tabIndex={0} role="group" aria-label="Some rows">
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
