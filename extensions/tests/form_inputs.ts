import { fireEvent, screen } from "@testing-library/preact";

/** The field with a label. */
export function input(label: string): HTMLInputElement {
  return screen.getByLabelText(label);
}

/** Types a text into a field and ends it with Enter. */
export function enter(element: HTMLElement, text: string): void {
  fireEvent.input(element, { target: { value: text } });
  fireEvent.keyDown(element, { key: "Enter" });
}
