import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { followTheme, themeName } from "../src/theme";

const before = globalThis.matchMedia;
afterEach(() => {
  globalThis.matchMedia = before;
  delete document.body.dataset.jpThemeLight;
});

/** A system in which these media queries match; returns what tells that one has changed. */
function system(...matching: string[]): (query: string) => void {
  const listeners = new Map<string, () => void>();
  globalThis.matchMedia = ((query: string) => ({
    matches: matching.includes(query),
    addEventListener: (_: string, listener: () => void) => listeners.set(query, listener),
    removeEventListener: () => listeners.delete(query),
  })) as unknown as typeof matchMedia;
  return (query) => listeners.get(query)?.();
}

test("the host's theme counts, and that of the system where there is no host or it forces colours", () => {
  system("(prefers-color-scheme: dark)");
  assert.equal(themeName(), "dark");
  document.body.dataset.jpThemeLight = "true";
  assert.equal(themeName(), "light");
  document.body.dataset.jpThemeLight = "false";
  system("(forced-colors: active)");
  assert.equal(themeName(), "light", "the system paints the pages of a dark host in its light colours");
});

test("a change of forced colours is noticed until that ends", () => {
  const change = system();
  let count = 0;
  const end = followTheme(() => count++);
  change("(forced-colors: active)");
  end();
  change("(forced-colors: active)");
  assert.equal(count, 1);
});
