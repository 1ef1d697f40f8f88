// The model: chosen or named, configured, and drawn layer by layer with what it costs.
import { formatBytes } from "../format";
import { Chooser, nameIn } from "./chooser";
import type { Conversation } from "./conversation";
import { fieldsOf, FoldedSection, SectionFields } from "./fields";
import type { FormState, Layer, Memory, ModelPicture, PartName } from "./protocol";
import { OldPicture, Slowly } from "./slowly";
import { capitalised, ended, Group, ProblemWords, useAsked, type FormProps } from "./typed";
import { formatCount } from "./words";

/** What building the model came to: refused is what every trial would end with. */
export type Verdict = "unknown" | "asked" | "refused" | "built";

/** Elsewhere than beside the picture nobody waits for it. */
const PAUSE_MS = 250;
const PAUSE_ELSEWHERE_MS = 1500;

/** Lets the kernel build the model whenever something has changed on which it depends. */
export function useVerdict(form: Conversation, parts: PartName[], isShown: boolean): Verdict {
  const { state } = form;
  const isWanted = parts.includes("model") || parts.includes("run");
  const key = state && isWanted ? keyOf(state) : null;
  const isAsked = useAsked(key, () => form.ask("model"), isShown ? PAUSE_MS : PAUSE_ELSEWHERE_MS);
  const held = form.part("model");
  // What a cluster has, such as its files, is not known here.
  if (key === null || !state?.is_experiment || state.address) return "unknown";
  if (!isAsked || !held || held.status === "working") return "asked";
  return held.status === "failed" || held.picture?.problems.length ? "refused" : "built";
}

/** All that the picture depends on: it is of the first configuration that the seed draws. */
function keyOf({ document, is_experiment }: FormState): string | null {
  const { model, data, loss, metrics, search, training, plan, seed, resources } = document;
  if (!model || !data) return null;
  return is_experiment ? JSON.stringify([model, data, loss, metrics, search, training, plan, seed, resources]) : "right last";
}

export function ModelPart({ form, onSearch }: FormProps & { onSearch(): void }) {
  const state = form.state!;
  const { model, data, train } = state.document;
  const settings = state.sections.find((one) => one.name === "model");
  const loss = state.sections.find((one) => one.name === "loss");
  return (
    <>
      {train ? (
        <p class="workbench-notice">
          This experiment trains with its own function, <code>{nameIn(train)}</code>, instead of a model and data. A model
          that you choose takes its place.
        </p>
      ) : null}
      <Chooser
        form={form}
        path="model"
        label="Model"
        offered={state.models}
        hint="One of these, a function or class of this notebook by its name once its cell has run, or package.module:function."
      />
      {settings && fieldsOf(settings).length ? (
        <Group title="Settings of the model">
          <SectionFields form={form} section={settings} onSearch={onSearch} />
        </Group>
      ) : null}
      {loss ? <FoldedSection form={form} section={loss} title="Loss and metrics" isOpen={false} /> : null}
      {model && !data ? <p class="workbench-form-empty">Choose data, too: its shape decides what the layers are.</p> : null}
      {model && data ? (
        <Group title="What it is made of">
          <OldPicture form={form} />
          <Slowly held={form.part("model")} working="Building the model …" again={() => form.ask("model")}>
            {(picture) => <Layers picture={picture} />}
          </Slowly>
        </Group>
      ) : null}
    </>
  );
}

function Layers({ picture }: { picture: ModelPicture }) {
  const { memory } = picture;
  return (
    <>
      {picture.problems.map((problem) => (
        <p class="workbench-notice workbench-notice-error" key={problem.problem}>
          <ProblemWords problem={problem} withField />
        </p>
      ))}
      {picture.words ? <p>{picture.words}</p> : null}
      <dl class="workbench-facts workbench-form-facts">
        {picture.layers.length ? (
          <>
            <Fact label="Parameters" value={formatCount(picture.num_parameters)} />
            <Fact label="FLOPs to train on a sample" value={picture.flops_per_sample == null ? "not known" : formatCount(picture.flops_per_sample)} />
          </>
        ) : null}
        {memory ? <Fact label={`Memory of a worker at ${memory.micro_batch} samples`} value={formatBytes(memory.bytes)} /> : null}
        {memory?.largest_micro_batch ? <Fact label="Largest micro batch that fits" value={formatCount(memory.largest_micro_batch)} /> : null}
      </dl>
      {memory ? <MemoryBar memory={memory} /> : null}
      {picture.layers.length ? <LayerTable picture={picture} /> : null}
    </>
  );
}

function LayerTable({ picture: { layers, num_parameters } }: { picture: ModelPicture }) {
  const most = Math.max(...layers.map((one) => one.num_parameters), 1);
  return (
    <div class="workbench-form-table" tabIndex={0} role="group" aria-label="Layers of the model">
      <table>
        <thead>
          <tr>
            <th scope="col">layer</th>
            <th scope="col">kind</th>
            <th scope="col">output of a sample</th>
            <th scope="col" class="workbench-numeric">parameters</th>
            <th scope="col" class="workbench-form-share-head">share of them</th>
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
        {layer.shares ? `those of ${layer.shares}` : layer.num_parameters ? layer.num_parameters.toLocaleString("en") : "–"}
      </td>
      <td>
        <span class="workbench-form-share">
          {layer.num_parameters ? (
            <>
              <span class="workbench-form-bar" aria-hidden="true">
                <span style={{ inlineSize: `${(layer.num_parameters / most) * 100}%` }} />
              </span>
              {(share * 100).toFixed(share < 0.1 ? 1 : 0)} %
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

function MemoryBar({ memory }: { memory: Memory }) {
  const parts = Object.entries(memory.parts).filter(([, bytes]) => bytes > 0);
  const words = memory.words ? capitalised(ended(memory.words)) : "";
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

