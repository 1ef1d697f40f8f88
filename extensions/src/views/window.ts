// Which rows of a long list are asked for: those on the screen, and some around them.
import type { Window } from "../subscription";

/** Rows that are asked for around those on the screen, and how close to their end more are asked for. */
const MARGIN_ROWS = 30;
const CLOSE_ROWS = 10;
const MAX_ROWS = 200;

/** The window that a scrolled box needs; null where the present one is enough. */
export function windowAround(
  box: { scrollTop: number; clientHeight: number },
  rowPx: number,
  total: number,
  { offset, limit }: Window,
  headPx = 0,
): Window | null {
  const first = Math.max(0, Math.floor(box.scrollTop / rowPx));
  const last = Math.min(total, first + Math.ceil((box.clientHeight - headPx) / rowPx) + 1);
  const enoughAbove = offset === 0 || first - CLOSE_ROWS >= offset;
  const enoughBelow = offset + limit >= Math.min(total, last + CLOSE_ROWS);
  if (enoughAbove && enoughBelow) return null;
  return {
    offset: Math.max(0, first - MARGIN_ROWS),
    limit: Math.min(MAX_ROWS, last - first + 2 * MARGIN_ROWS),
  };
}
