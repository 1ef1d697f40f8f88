// Slices of a state: a view that reads a field is drawn again when that field gets another value.
import { signal } from "@preact/signals";

/**
 * Puts a signal behind each field of an object that is there now.
 *
 * What is read while a component is drawn is followed; setting a field draws only what has read it. A field
 * has to get another value to be seen as changed: what is inside a value is not followed.
 */
export function intoSlices(owner: object, fields = Object.keys(owner)): void {
  for (const field of fields) {
    const slice = signal<unknown>(Reflect.get(owner, field));
    Object.defineProperty(owner, field, {
      enumerable: true,
      get: () => slice.value,
      set: (value: unknown) => {
        slice.value = value;
      },
    });
  }
}
