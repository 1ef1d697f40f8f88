// Adds runs to a comparison by their name, their id, or a pattern of either.
import { useId, useState } from "preact/hooks";
import type { Controller } from "../controller";
import { formatCount } from "../format";
import { MAX_COMPARED } from "../subscription";
import { wordsOf } from "./actions";

export function RunAdder({ controller }: { controller: Controller }) {
  const { view, runs } = controller.state;
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const id = useId();
  const names = [...new Set((runs?.items ?? []).map(({ name }) => name))];
  const add = async (event: Event) => {
    event.preventDefault();
    const pattern = (event.currentTarget as HTMLFormElement).querySelector("input")?.value.trim();
    if (!pattern) return;
    try {
      const found = await controller.json<string[]>(`matching-runs?pattern=${encodeURIComponent(pattern)}`);
      const all = [...new Set([...controller.state.view.compared, ...found])];
      setProblem(found.length ? tooMany(all.length) : `No run matches “${pattern}”.`);
      if (!found.length) return;
      setText("");
      controller.show({ compared: all.slice(0, MAX_COMPARED) });
    } catch (error) {
      setProblem(wordsOf(error));
    }
  };
  return (
    <form class="workbench-adder" onSubmit={(event) => void add(event)}>
      <input
        type="text"
        list={id}
        placeholder="name or digits-*"
        aria-label="Add runs by name or pattern"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setProblem("");
        }}
      />
      <datalist id={id}>
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <button type="submit" disabled={!text.trim()}>
        Add
      </button>
      {view.compared.length > 1 ? (
        <button type="button" class="workbench-quiet" onClick={() => controller.show({ compared: [] })}>
          Clear
        </button>
      ) : null}
      {problem ? (
        <p class="workbench-adder-problem" role="status">
          {problem}
        </p>
      ) : null}
    </form>
  );
}

function tooMany(count: number): string {
  return count > MAX_COMPARED ? `Only the first ${MAX_COMPARED} of ${formatCount(count, "run")} are compared.` : "";
}
