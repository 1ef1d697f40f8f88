// Which keys belong to a view in a notebook's output, and which to JupyterLab. Single keys are commands of the notebook
// and would act on its cells; a key with Ctrl, Alt or Cmd is a shortcut of JupyterLab, as everywhere.

/** JupyterLab looks for it from what is focused upwards, until a shortcut matches: it must be on the focused itself. */
const SUPPRESS = "data-lm-suppress-shortcuts";
/** With Ctrl or Cmd these edit the text that is typed into. */
const EDITING = new Set(["a", "c", "v", "x", "y", "z", "Enter", "Backspace", "Delete", "Home", "End"]);

/** Lets JupyterLab's shortcuts through while the focus is in `root`; returns what ends that. */
export function sharePressedKeys(root: HTMLElement): () => void {
  const share = (event: KeyboardEvent): void => {
    const { target } = event;
    if (target instanceof Element && root.contains(target)) target.toggleAttribute(SUPPRESS, belongsToView(event));
  };
  // JupyterLab listens on the document, before the view would.
  window.addEventListener("keydown", share, true);
  return () => window.removeEventListener("keydown", share, true);
}

export function belongsToView({ key, ctrlKey, metaKey, altKey, target }: KeyboardEvent): boolean {
  if (!ctrlKey && !metaKey && !altKey) return !/^F\d+$/.test(key);
  if (altKey) return false;
  const letter = key.length === 1 ? key.toLowerCase() : key;
  // The form undoes its own steps.
  return letter === "z" || (isEdited(target) && (EDITING.has(letter) || key.startsWith("Arrow")));
}

function isEdited(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input, textarea, select, [contenteditable]");
}
