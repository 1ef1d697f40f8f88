// The pictures, tables and texts that a trial reported: by name, and of several with one name one at a time.
import { useEffect, useState } from "preact/hooks";
import type { Controller } from "../controller";
import { formatCount, formatValue } from "../format";
import type { AttachedFile, TrialDetail } from "../types";
import { saveAs, wordsOf } from "./actions";

/** Pictures of fewer pixels are shown larger, each pixel as a square. */
const SMALL_PX = 160;

interface Table {
  columns: string[];
  rows: unknown[][];
  num_rows: number;
}

/** An image as a data URL, which has no origin even where it is opened as a page; or the text of a file. */
interface Content {
  kind: AttachedFile["kind"] | "problem";
  text: string;
}

export function Attachments({ controller, trial }: { controller: Controller; trial: TrialDetail }) {
  const byName = new Map<string, AttachedFile[]>();
  for (const one of trial.attachments ?? []) byName.set(one.name, [...(byName.get(one.name) ?? []), one]);
  if (!byName.size) return null;
  return (
    <section>
      <h3>Reported to look at</h3>
      {[...byName].map(([name, files]) => (
        <Series
          key={`${trial.number} ${name}`}
          controller={controller}
          trial={trial.number}
          name={name}
          files={files}
        />
      ))}
    </section>
  );
}

interface SeriesProps {
  controller: Controller;
  trial: number;
  name: string;
  files: AttachedFile[];
}

function Series({ controller, trial, name, files }: SeriesProps) {
  /** The step that is looked at; null follows the newest. */
  const [step, setStep] = useState<number | null>(null);
  const found = step === null ? -1 : files.findIndex((one) => one.step >= step);
  const place = found < 0 ? files.length - 1 : found;
  const shown = files[place];
  const path = `runs/${encodeURIComponent(controller.state.view.run ?? "")}/trials/${trial}/attachments/${shown.file}`;
  return (
    <figure class="workbench-attached">
      <figcaption>
        <bdi>{name}</bdi>
        <span class="workbench-muted workbench-number">step {shown.step}</span>
        {files.length > 1 ? (
          <input
            type="range"
            min={0}
            max={files.length - 1}
            value={place}
            aria-label={`Step of ${name}`}
            aria-valuetext={`step ${shown.step}`}
            onInput={({ currentTarget }) => {
              const chosen = Number(currentTarget.value);
              setStep(chosen === files.length - 1 ? null : files[chosen].step);
            }}
          />
        ) : null}
        {files.length > 1 ? null : <span class="workbench-gap" />}
        <button type="button" class="workbench-quiet" onClick={() => saveAs(controller, path, shown.file)}>
          Download
        </button>
      </figcaption>
      <Shown controller={controller} path={path} file={shown} />
    </figure>
  );
}

function Shown({ controller, path, file }: { controller: Controller; path: string; file: AttachedFile }) {
  const [content, setContent] = useState<Content | null>(null);
  useEffect(() => {
    let isCurrent = true;
    const read = async () => {
      const blob = await controller.file(path);
      return file.kind === "image" ? dataUrl(blob) : blob.text();
    };
    read().then(
      (text) => isCurrent && setContent({ kind: file.kind, text }),
      (error: unknown) => isCurrent && setContent({ kind: "problem", text: wordsOf(error) }),
    );
    return () => {
      isCurrent = false;
    };
  }, [controller, path, file.kind]);
  // While the next one is read, the one before stays.
  if (!content) return <p class="workbench-muted">Reading …</p>;
  if (content.kind === "problem") return <p class="workbench-muted">{content.text}</p>;
  if (content.kind === "image")
    return (
      <img
        src={content.text}
        alt={`${file.name}, step ${file.step}`}
        onLoad={({ currentTarget: at }) => at.classList.toggle("workbench-small", at.naturalWidth < SMALL_PX)}
      />
    );
  if (content.kind === "table") return <Rows name={file.name} table={JSON.parse(content.text) as Table} />;
  return (
    <pre tabIndex={0} role="group" aria-label={file.name}>
      {content.text}
    </pre>
  );
}

function Rows({ name, table }: { name: string; table: Table }) {
  return (
    <div tabIndex={0} role="group" aria-label={name}>
      <table>
        <thead>
          <tr>
            {table.columns.map((column, index) => (
              <th key={index} scope="col">
                <bdi>{column}</bdi>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, at) => (
                <td key={at}>
                  <bdi>{formatValue(cell)}</bdi>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {table.num_rows > table.rows.length ? (
        <p class="workbench-muted">
          the first {table.rows.length} of {formatCount(table.num_rows, "row")}
        </p>
      ) : null}
    </div>
  );
}

function dataUrl(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error("the picture cannot be read"));
    reader.readAsDataURL(blob);
  });
}
