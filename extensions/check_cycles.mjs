// Fails when source files import each other in a circle, types included.
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const here = dirname(fileURLToPath(import.meta.url));

/** Return the first circle of imports below a folder as a list of files, or null. */
export function findCycle(folder) {
  const files = ts.sys.readDirectory(folder, [".ts", ".tsx"]);
  const options = { moduleResolution: ts.ModuleResolutionKind.Bundler, module: ts.ModuleKind.ESNext };
  const imports = new Map(
    files.map((file) => {
      const { importedFiles } = ts.preProcessFile(ts.sys.readFile(file), true, true);
      const found = importedFiles.map(
        ({ fileName }) => ts.resolveModuleName(fileName, file, options, ts.sys).resolvedModule?.resolvedFileName,
      );
      return [file, found.filter((name) => files.includes(name))];
    }),
  );
  const finished = new Set();
  const visit = (file, path) => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (finished.has(file)) return null;
    for (const next of imports.get(file)) {
      const cycle = visit(next, [...path, file]);
      if (cycle) return cycle;
    }
    finished.add(file);
    return null;
  };
  for (const file of files) {
    const cycle = visit(file, []);
    if (cycle) return cycle.map((name) => relative(folder, name));
  }
  return null;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const cycle = findCycle(join(here, "src"));
  if (cycle) {
    console.error(`These files import each other in a circle: ${cycle.join(" -> ")}`);
    process.exit(1);
  }
}
