// The model: chosen or named, configured, and listed layer by layer with its cost.
import { formatBytes, formatCount, formatPercent } from "../format";
import { Chooser, displayName } from "./chooser";
import type { KernelConnection } from "./kernel_connection";
import { fieldsOf, FoldedSection, SectionFields } from "./fields";
import type { PartName } from "./message_types";
import type { FormState, Layer, WorkerMemory, ModelPreview } from "../types";
import { OutdatedNotice, AsyncResult } from "./async_result";
import { capitalized, asSentence, Group, ProblemText, useQuery, type FormProps } from "./text_field";

/** The result of building the model; if it failed, every trial would fail. */
export type ModelCheck = "unknown" | "building" | "failed" | "built";

/** The pause is longer while the result is not on the screen. */
const PAUSE_MS = 250;
const PAUSE_HIDDEN_MS = 1500;

/** Has the kernel build the model whenever something that it depends on has changed. */
export function useModelCheck(form: KernelConnection, parts: PartName[], isShown: boolean): ModelCheck {
  const { state } = form;
  const isWanted = parts.includes("model") || parts.includes("run");
  const key = state && isWanted ? keyOf(state) : null;
  const isAsked = useQuery(key, () => form.query("model"), isShown ? PAUSE_MS : PAUSE_HIDDEN_MS);
  const answer = form.answer("model");
  // The files of a cluster are not known here.
  if (key === null || !state?.is_experiment || state.address) return "unknown";
  if (!isAsked || !answer || answer.status === "working") return "building";
  return answer.status === "failed" || answer.result?.problems.length ? "failed" : "built";
}

/** Everything that the result depends on; it describes the first configuration that the seed draws. */
function keyOf({ document, is_experiment }: FormState): string | null {
  const { model, data, loss, metrics, search, training, plan, seed, resources } = document;
  if (!model || !data) return null;
  return is_experiment
    ? JSON.stringify([model, data, loss, metrics, search, training, plan, seed, resources])
    : "right last";
}

export function ModelPart({ form, onSearch }: FormProps & { onSearch(): void }) {
  const state = form.state;
  const { model, data, train } = state.document;
  const settings = state.sections.find((one) => one.name === "model");
  const loss = state.sections.find((one) => one.name === "loss");
  return (
    <>
      {train ? (
        <p class="workbench-notice">
          This experiment trains with its own function, <code>{displayName(train)}</code>, instead of a model and data.
          A model that you choose takes its place.
        </p>
      ) : null}
      <Chooser
        form={form}
        path="model"
        label="Model"
        offered={state.models}
        hint="One of these, the name of a function or class defined in this notebook, or package.module:function."
      />
      {settings && fieldsOf(settings).length ? (
        <Group title="Model settings">
          <SectionFields form={form} section={settings} onSearch={onSearch} />
        </Group>
      ) : null}
      {loss ? <FoldedSection form={form} section={loss} title="Loss and metrics" isOpen={false} /> : null}
      {model && !data ? (
        <p class="workbench-form-empty">Choose data as well: its shape determines the layers.</p>
      ) : null}
      {model && data ? (
        <Group title="Layers">
          <OutdatedNotice form={form} />
          <AsyncResult answer={form.answer("model")} working="Building the model …" onRetry={() => form.query("model")}>
            {(result) => <Layers result={result} />}
          </AsyncResult>
          <MissingValue form={form} onSearch={onSearch} />
        </Group>
      ) : null}
    </>
  );
}

/** A value that the model could not be built without: searched with one click, whether or not the source tells of it. */
function MissingValue({ form, onSearch }: FormProps & { onSearch(): void }) {
  const answer = form.answer("model");
  const path = answer?.status === "failed" ? (answer.problem?.field ?? "") : "";
  const [, name] = /^model\.(\w+)$/.exec(path) ?? [];
  const field = form.state.sections.flatMap(({ fields }) => fields).find((one) => one.path === path);
  const isGiven = form.state.search.some((row) => row.name === name) || (field !== undefined && field.value !== null);
  if (name === undefined || isGiven) return null;
  const domain = field?.initial_search ?? { type: "float", low: 0, high: 1 };
  return (
    <div class="workbench-buttons">
      <button
        type="button"
        onClick={() => {
          form.edit([[`search.${name}`, domain]], `Search ${name}`);
          onSearch();
        }}
      >
        Search {name}
      </button>
    </div>
  );
}

function Layers({ result }: { result: ModelPreview }) {
  const { memory } = result;
  return (
    <>
      {result.problems.map((problem) => (
        <p class="workbench-notice workbench-notice-error" key={problem.problem}>
          <ProblemText problem={problem} withField />
        </p>
      ))}
      {result.words ? <p>{result.words}</p> : null}
      <dl class="workbench-facts workbench-form-facts">
        {result.layers.length ? (
          <>
            <Fact label="Parameters" value={formatCount(result.num_parameters)} />
            <Fact
              label="FLOPs per training sample"
              value={result.flops_per_sample == null ? "unknown" : formatCount(result.flops_per_sample)}
            />
          </>
        ) : null}
        {memory ? (
          <Fact
            label={`Memory per worker at ${formatCount(memory.micro_batch, "sample")}`}
            value={formatBytes(memory.bytes)}
          />
        ) : null}
        {memory?.largest_micro_batch ? (
          <Fact label="Largest micro batch that fits" value={formatCount(memory.largest_micro_batch)} />
        ) : null}
      </dl>
      {memory ? <MemoryBar memory={memory} /> : null}
      {result.layers.length ? <LayerTable result={result} /> : null}
    </>
  );
}

function LayerTable({ result: { layers, num_parameters } }: { result: ModelPreview }) {
  const most = Math.max(...layers.map((one) => one.num_parameters), 1);
  return (
    <div class="workbench-form-table" tabIndex={0} role="group" aria-label="Layers of the model">
      <table>
        <thead>
          <tr>
            <th scope="col">layer</th>
            <th scope="col">kind</th>
            <th scope="col">output shape</th>
            <th scope="col" class="workbench-numeric">
              parameters
            </th>
            <th scope="col" class="workbench-form-share-head">
              share of them
            </th>
          </tr>
        </thead>
        <tbody>
          {layers.map((layer) => (
            <LayerRow key={layer.name} layer={layer} most={most} total={num_parameters} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function LayerRow({ layer, most, total }: { layer: Layer; most: number; total: number }) {
  const share = total ? layer.num_parameters / total : 0;
  return (
    <tr>
      <th scope="row" style={{ paddingInlineStart: `${10 + 14 * layer.depth}px` }}>
        {layer.name || "model"}
      </th>
      <td class="workbench-muted">{layer.kind}</td>
      <td>{layer.output_shape ? layer.output_shape.join(" × ") : "–"}</td>
      <td class="workbench-numeric">
        {layer.shares ? `shared with ${layer.shares}` : layer.num_parameters ? formatCount(layer.num_parameters) : "–"}
      </td>
      <td>
        <span class="workbench-form-share">
          {layer.num_parameters ? (
            <>
              <span class="workbench-form-bar" aria-hidden="true">
                <span style={{ inlineSize: `${(layer.num_parameters / most) * 100}%` }} />
              </span>
              {formatPercent(share)}
            </>
          ) : null}
        </span>
      </td>
    </tr>
  );
}

export function Fact({ label, value }: { label: string; value: string }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

function MemoryBar({ memory }: { memory: WorkerMemory }) {
  const parts = Object.entries(memory.parts).filter(([, bytes]) => bytes > 0);
  const words = memory.words ? capitalized(asSentence(memory.words)) : "";
  return (
    <div class="workbench-parts">
      <div class="workbench-parts-bar" aria-hidden="true">
        {parts.map(([name, bytes], at) => (
          <div key={name} style={{ flexGrow: bytes, background: `var(--workbench-category-${at % 8})` }} />
        ))}
      </div>
      <dl>
        {parts.map(([name, bytes], at) => (
          <div key={name}>
            <dt>
              <i style={{ background: `var(--workbench-category-${at % 8})` }} />
              {name.replaceAll("_", " ")}
            </dt>
            <dd>{formatBytes(bytes)}</dd>
          </div>
        ))}
      </dl>
      {words ? <p class={memory.fits === false ? "workbench-form-problem" : "workbench-hint"}>{words}</p> : null}
    </div>
  );
}
