// The advice as a card: what to use, what it gains, why, and the next best.
import type { ComponentChildren } from "preact";
import type { AdviceCard as Card, CardGain } from "../types";
import { Code } from "./components";

export function AdviceCard({ card, children }: { card: Card; children?: ComponentChildren }) {
  return (
    <article class="workbench-card workbench-advice" aria-label="Advice">
      <p class="workbench-muted">Advice for {card.goal}</p>
      <dl class="workbench-facts">
        {card.headline.map(({ name, text }) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      {card.rejected.length ? <p>Fastest plan: {card.rejected.join(", ")}</p> : null}
      {card.gain ? <Gain gain={card.gain} /> : null}
      {children}
      <Texts title="Why" texts={card.why} />
      {card.others.map((other) => (
        <section key={other.name}>
          <h4>{other.name}</h4>
          <p>{other.plan}</p>
          <p class="workbench-muted">{other.compared}</p>
        </section>
      ))}
      <section>
        <h4>Predicted</h4>
        <dl class="workbench-advice-predicted">
          {card.predicted.map(({ name, text }) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
      </section>
      <Texts title="Uncertain" texts={card.would_change} />
      <details>
        <summary>What was measured, and the settings as YAML</summary>
        <Texts title="Measured" texts={card.measured} />
        <Texts title="Exchanges between workers" texts={card.exchanges} />
        {card.settings.length ? <Code label="settings" text={card.settings.join("\n")} /> : null}
      </details>
    </article>
  );
}

/** A bar with its interval; a line stands at the experiment without advice. */
function Gain({ gain }: { gain: CardGain }) {
  const most = 1.1 * Math.max(gain.high, gain.factor, 1);
  const share = (value: number) => `${((100 * value) / most).toFixed(1)}%`;
  const words = `${gain.factor.toFixed(2)} times (${gain.low.toFixed(2)} to ${gain.high.toFixed(2)}) ${gain.words}`;
  return (
    <div class="workbench-gain">
      <p>{words}</p>
      <div class="workbench-gain-track" role="img" aria-label={words}>
        <span class="workbench-gain-bar" style={{ inlineSize: share(gain.factor) }} />
        <span
          class="workbench-gain-interval"
          style={{ insetInlineStart: share(gain.low), inlineSize: share(gain.high - gain.low) }}
        />
        <span class="workbench-gain-one" style={{ insetInlineStart: share(1) }} title="without advice" />
      </div>
    </div>
  );
}

function Texts({ title, texts }: { title: string; texts: string[] }) {
  if (!texts.length) return null;
  return (
    <section>
      <h4>{title}</h4>
      <ul>
        {texts.map((text) => (
          <li key={text}>{text}</li>
        ))}
      </ul>
    </section>
  );
}
