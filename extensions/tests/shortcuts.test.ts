import "./dom";
import assert from "node:assert/strict";
import { test } from "node:test";
import { sharePressedKeys } from "../src/shortcuts";

/** Whether JupyterLab, which listens on the document, would find its shortcuts suppressed. */
function isKept(target: HTMLElement, init: KeyboardEventInit): boolean {
  let kept: boolean | null = null;
  const lab = () => (kept = target.hasAttribute("data-lm-suppress-shortcuts"));
  document.addEventListener("keydown", lab, true);
  target.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, ...init }));
  document.removeEventListener("keydown", lab, true);
  return kept!;
}

test("shortcuts of JupyterLab work with the focus in an output; single keys and editing stay in it", () => {
  const root = document.body.appendChild(document.createElement("div"));
  const button = root.appendChild(document.createElement("button"));
  const field = root.appendChild(document.createElement("input"));
  const end = sharePressedKeys(root);
  assert.ok(isKept(button, { key: "d" }), "d d deletes a cell");
  assert.ok(isKept(field, { key: "A", shiftKey: true }));
  assert.ok(!isKept(button, { key: "s", ctrlKey: true }));
  assert.ok(!isKept(field, { key: "s", ctrlKey: true }));
  assert.ok(!isKept(button, { key: "W", altKey: true, shiftKey: true }));
  assert.ok(!isKept(button, { key: "F11" }));
  assert.ok(isKept(field, { key: "a", metaKey: true }), "selects the text of the field");
  assert.ok(!isKept(button, { key: "c", ctrlKey: true, shiftKey: true }));
  assert.ok(isKept(button, { key: "z", ctrlKey: true }), "undoes a step of the form");
  end();
  button.removeAttribute("data-lm-suppress-shortcuts");
  assert.ok(!isKept(button, { key: "d" }), "nothing listens any more");
});
