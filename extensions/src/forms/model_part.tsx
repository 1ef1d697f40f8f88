// The model: chosen or named, configured, and drawn layer by layer with what it costs.
import { formatBytes } from "../format";
import { Chooser } from "./chooser";
import { fieldsOf, FoldedSection, SectionFields } from "./fields";
import type { Layer, Memory, ModelPicture } from "./protocol";
import { Slowly } from "./slowly";
import { capitalised, ended, Group, ProblemWords, useAsked, type FormProps } from "./typed";
import { formatCount } from "./words";

export function ModelPart({ form, onSearch }: FormProps & { onSearch(): void }) {
  const state = form.state!;
  const { model, data, training, plan } = state.document;
  useAsked(model && data ? JSON.stringify([model, data, training, plan]) : null, () => form.ask("model"));
  const settings = state.sections.find((one) => one.name === "model");
  const loss = state.sections.find((one) => one.name === "loss");
  return (
    <>
      <Chooser
        form={form}
        path="model"
        label="Model"
        offered={state.models}
        hint="One of these, a function or class of this notebook by its name, or package.module:function."
      />
      {settings && fieldsOf(settings).length ? (
        <Group title="Settings of the model">
          <SectionFields form={form} section={settings} onSearch={onSearch} />
        </Group>
      ) : null}
      {loss ? <FoldedSection form={form} section={loss} title="Loss and metrics" isOpen={false} /> : null}
      {model && !data ? <p class="workbench-form-empty">Choose data, too: its shape decides what the layers are.</p> : null}
      {model && data ? (
        <Group title="Layers">
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
  const most = Math.max(...picture.layers.map((one) => one.num_parameters), 1);
  return (
    <>
      {picture.problems.map((problem) => (
        <p class="workbench-notice workbench-notice-error" key={problem.problem}>
          <ProblemWords problem={problem} withField />
        </p>
      ))}
      <dl class="workbench-facts workbench-form-facts">
        <Fact label="Parameters" value={formatCount(picture.num_parameters)} />
        <Fact label="FLOPs to train on a sample" value={picture.flops_per_sample == null ? "not known" : formatCount(picture.flops_per_sample)} />
        {memory ? <Fact label={`Memory of a worker at ${memory.micro_batch} samples`} value={formatBytes(memory.bytes)} /> : null}
        {memory?.largest_micro_batch ? <Fact label="Largest micro batch that fits" value={formatCount(memory.largest_micro_batch)} /> : null}
      </dl>
      {memory ? <MemoryBar memory={memory} /> : null}
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
            {picture.layers.map((layer) => (
              <LayerRow key={layer.name} layer={layer} most={most} total={picture.num_parameters} />
            ))}
          </tbody>
        </table>
      </div>
    </>
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

