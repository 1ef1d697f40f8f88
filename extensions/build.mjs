// Builds what browsers load: the page, the extension of JupyterLab and the widgets.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { buildLabExtension, buildWidgets } from "./build_lab.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const python = join(here, "..", "workbench");

const shared = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
};

/** The stand-alone page: view.js and view.css, which the server serves as static files. */
function buildPage() {
  return esbuild.build({
    ...shared,
    entryPoints: { view: "src/page.ts" },
    outdir: join(python, "views", "server", "static"),
    format: "iife",
  });
}

await Promise.all([
  buildPage(),
  buildLabExtension(shared),
  buildWidgets(shared, join(python, "views", "widgets", "static")),
]);
