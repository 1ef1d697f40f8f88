// Views of widgets outlive a host that draws their output again. The kernel renews what a saved notebook holds of a
// widget; JupyterLab then renders the widget anew, and a view with all that was chosen in it would begin again.

interface Kept {
  /** What the host gave. */
  element: HTMLElement;
  /** What the view fills, within it. */
  place: HTMLElement;
  end: () => void;
}

interface Model {
  get(name: "layout"): unknown;
}

const views = new WeakMap<object, Set<Kept>>();

/**
 * Shows a view of a widget, or the one that its host has just thrown away.
 * Returns what ends the view, unless another element has taken it over.
 */
export function keepView(model: object, element: HTMLElement, show: (element: HTMLElement) => () => void): () => void {
  // Every widget has a layout of its own, whereas each view gets another proxy of the model.
  const widget = (model as Model).get("layout");
  if (typeof widget !== "object" || widget === null) return show(element);
  const shown = views.get(widget) ?? new Set<Kept>();
  views.set(widget, shown);
  for (const old of shown) {
    // A cell that is scrolled away still holds its view: this one was taken out of what held it.
    if (old.element.parentNode !== null || old.element.isConnected) continue;
    shown.delete(old);
    element.append(old.place);
    return remember(shown, { ...old, element });
  }
  const place = document.createElement("div");
  element.append(place);
  return remember(shown, { element, place, end: show(place) });
}

function remember(shown: Set<Kept>, view: Kept): () => void {
  shown.add(view);
  return () => {
    if (!shown.delete(view)) return;
    view.end();
    view.place.remove();
  };
}
