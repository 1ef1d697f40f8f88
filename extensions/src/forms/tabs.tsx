// Tabs, of which one is chosen by pointer or arrow keys.

export interface Tab<N extends string> {
  name: N;
  title: string;
  /** How many problems lie behind it. */
  num_problems?: number;
}

interface TabsProps<N extends string> {
  id: string;
  label: string;
  tabs: Tab<N>[];
  chosen: N;
  onChoose: (name: N) => void;
}

export function Tabs<N extends string>({ id, label, tabs, chosen, onChoose }: TabsProps<N>) {
  const move = (event: KeyboardEvent) => {
    const at = tabs.findIndex((one) => one.name === chosen);
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = { Home: 0, End: tabs.length - 1 }[event.key] ?? (by && (at + by + tabs.length) % tabs.length);
    if (to === undefined) return;
    event.preventDefault();
    onChoose(tabs[to].name);
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")[to].focus();
  };
  return (
    <div class="workbench-tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map(({ name, title, num_problems }) => (
        <button
          key={name}
          type="button"
          role="tab"
          id={`${id}-${name}`}
          aria-controls={name === chosen ? `${id}-panel` : undefined}
          aria-selected={name === chosen}
          tabIndex={name === chosen ? 0 : -1}
          onClick={() => onChoose(name)}
        >
          {title}
          {num_problems ? (
            <span
              class="workbench-form-badge"
              aria-label={num_problems === 1 ? "1 problem" : `${num_problems} problems`}
              role="img"
            >
              {num_problems}
            </span>
          ) : null}
        </button>
      ))}
    </div>
  );
}
