// A button that opens a list of further things to do.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

const GAP_PX = 6;
/** Less than this below the button, and the list opens above it, if there is more. */
const ENOUGH_PX = 160;

interface MenuProps {
  label: string;
  title?: string;
  children: (close: () => void) => ComponentChildren;
}

export function Menu({ label, title, children }: MenuProps) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  useEffect(() => {
    if (!open) return;
    const list = box.current?.querySelector<HTMLElement>(".workbench-menu-list");
    if (list && button.current) keepInside(list, button.current);
    list?.querySelector("button")?.focus();
    const outside = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Escape" && open) {
      event.stopPropagation();
      setOpen(false);
      button.current?.focus();
      return;
    }
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    // In a list or a number the arrows choose.
    if (!by || !open || (event.target as HTMLElement).matches("select, input[type=number]")) return;
    event.preventDefault();
    const all = [...(box.current?.querySelectorAll<HTMLElement>(".workbench-menu-list button") ?? [])];
    all[(all.indexOf(document.activeElement as HTMLElement) + by + all.length) % all.length]?.focus();
  };
  return (
    <div class="workbench-menu" ref={box} onKeyDown={onKey}>
      <button
        ref={button}
        type="button"
        title={title}
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        onClick={() => setOpen(!open)}
      >
        {label} <span aria-hidden="true">▾</span>
      </button>
      {open ? (
        <div id={id} class="workbench-menu-list" role="group" aria-label={label}>
          {children(() => setOpen(false))}
        </div>
      ) : null}
    </div>
  );
}

/** Keeps a list inside its view: what does not fit is scrolled to. */
function keepInside(list: HTMLElement, button: HTMLElement): void {
  const edge = list.closest(".workbench")?.getBoundingClientRect();
  if (!edge) return;
  if (list.getBoundingClientRect().left < edge.left) list.style.insetInline = "0 auto";
  const { top, bottom } = button.getBoundingClientRect();
  const below = Math.min(edge.bottom, window.innerHeight) - bottom;
  const above = top - Math.max(edge.top, 0);
  const isAbove = below < ENOUGH_PX && above > below;
  if (isAbove) list.style.insetBlock = "auto calc(100% + 3px)";
  list.style.maxBlockSize = `${Math.max(0, (isAbove ? above : below) - GAP_PX)}px`;
}
