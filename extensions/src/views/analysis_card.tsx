// A small figure with its title.
import type { ComponentChildren } from "preact";

interface CardProps {
  title: string;
  hint?: string;
  isWide?: boolean;
  aside?: ComponentChildren;
  children: ComponentChildren;
}

export function Card({ title, hint, isWide = false, aside, children }: CardProps) {
  return (
    <section class={`workbench-figure-card${isWide ? " workbench-figure-wide" : ""}`} aria-label={title}>
      <header class="workbench-bar">
        <h3>
          <bdi>{title}</bdi>
        </h3>
        {hint ? <span class="workbench-hint">{hint}</span> : null}
        <span class="workbench-gap" />
        {aside}
      </header>
      {children}
    </section>
  );
}
