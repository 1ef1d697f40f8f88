// Bundles every test for Node and runs them with Node's own test runner.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
// Below node_modules, so that packages which are not bundled are found.
const cache = join(here, "..", "node_modules", ".cache");
mkdirSync(cache, { recursive: true });
const folder = mkdtempSync(join(cache, "workbench-tests-"));
try {
  buildSync({
    entryPoints: readdirSync(here)
      .filter((name) => /\.test\.tsx?$/.test(name))
      .map((name) => join(here, name)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
    mainFields: ["module", "main"],
    external: ["happy-dom", "@happy-dom/*"],
    loader: { ".css": "empty" },
    // Packages that are written for CommonJS require modules of Node.
    banner: { js: `import { createRequire } from "node:module"; const require = createRequire(import.meta.url);` },
  });
  const tests = readdirSync(folder)
    .filter((name) => name.endsWith(".mjs"))
    .map((name) => join(folder, name));
  process.exitCode = spawnSync(process.execPath, ["--test", ...tests], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
