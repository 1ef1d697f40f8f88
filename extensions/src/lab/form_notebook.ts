// A form in a new notebook, for those who want to define an experiment without writing a cell first.
import type { JupyterFrontEnd } from "@jupyterlab/application";

const RUN_ALL = "notebook:run-all-cells";

/** What a notebook offers of its kernel. */
interface OpenNotebook {
  context?: { sessionContext?: { ready: Promise<void> } };
}

/**
 * Makes a notebook with a form, opens it and runs its cell.
 *
 * `path` names an experiment file below the server's folder, or one that comes with the workbench.
 */
export async function openFormNotebook({ commands, serviceManager }: JupyterFrontEnd, path?: string): Promise<void> {
  const { contents, kernelspecs } = serviceManager;
  await kernelspecs.ready;
  const name = kernelspecs.specs?.default ?? "python3";
  const made = await contents.newUntitled({ type: "notebook" });
  const kernelspec = { name, display_name: kernelspecs.specs?.kernelspecs[name]?.display_name ?? name };
  const cell = { cell_type: "code", execution_count: null, metadata: {}, outputs: [], source: sourceOf(path) };
  const content = { cells: [cell], metadata: { kernelspec }, nbformat: 4, nbformat_minor: 4 };
  await contents.save(made.path, { type: "notebook", format: "json", content });
  const opened = (await commands.execute("docmanager:open", { path: made.path, kernel: { name } })) as OpenNotebook;
  await opened.context?.sessionContext?.ready;
  await commands.execute(RUN_ALL);
}

export function sourceOf(path?: string): string {
  return `import workbench as wb\n\nform = wb.app(${path ? JSON.stringify(path) : ""})\nform`;
}
