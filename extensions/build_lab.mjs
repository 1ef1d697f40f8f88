// Builds what JupyterLab and notebooks load: the prebuilt extension, and the modules of the widgets.
//
// A prebuilt extension is one script that puts a module-federation container on the page. The container is
// written here by hand, so that building takes esbuild and not JupyterLab's builder. Both plugins of the
// extension are in one module, so that the view is loaded once.
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as esbuild from "esbuild";

const TARGET = "labextension";
const SCHEMAS = "schema";

/** Style sheets become code that puts them on the page once: these places load a single script. */
const styles = {
  name: "styles",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { outputFiles } = await esbuild.build({
        entryPoints: [path],
        bundle: true,
        minify: true,
        write: false,
      });
      const [{ text, hash }] = outputFiles;
      return { contents: putOnPage(text, `workbench-style-${hash}`), loader: "js" };
    });
  },
};

function putOnPage(css, id) {
  return `if (!document.getElementById(${JSON.stringify(id)})) {
    const style = document.createElement("style");
    style.id = ${JSON.stringify(id)};
    style.textContent = ${JSON.stringify(css)};
    document.head.append(style);
  }`;
}

/** The modules of the anywidgets: everything in each, because their hosts offer nothing. */
export function buildWidgets(shared, folder) {
  return esbuild.build({
    ...shared,
    entryPoints: { widget: "src/widget.ts", form: "src/forms/form.ts", tiers: "src/tiers/widget.ts" },
    outdir: folder,
    format: "esm",
    plugins: [styles],
  });
}

/** The prebuilt extension of JupyterLab in `labextension/`. */
export async function buildLabExtension(shared) {
  const folder = join(shared.absWorkingDir, TARGET);
  const manifest = JSON.parse(readFileSync(join(shared.absWorkingDir, "package.json"), "utf8"));
  const { outputFiles, metafile } = await esbuild.build({
    ...shared,
    entryPoints: ["src/lab/entry.ts"],
    format: "cjs",
    external: ["@jupyterlab/*", "@lumino/*"],
    plugins: [styles],
    metafile: true,
    write: false,
  });
  const imports = Object.values(metafile.outputs).flatMap((output) => output.imports);
  const externals = [...new Set(imports.filter((one) => one.external).map((one) => one.path))].sort();
  const script = container(manifest.name, externals, outputFiles[0].text);
  const name = `remoteEntry.${createHash("sha256").update(script).digest("hex").slice(0, 20)}.js`;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "static"), { recursive: true });
  writeFileSync(join(folder, "static", name), script);
  cpSync(join(shared.absWorkingDir, SCHEMAS), join(folder, "schemas", manifest.name), { recursive: true });
  writeFileSync(join(folder, "schemas", manifest.name, "package.json.orig"), write(manifest));
  writeFileSync(join(folder, "package.json"), write(withBuild(manifest, name)));
}

function withBuild({ name, version, description, license }, script) {
  const _build = { load: `static/${script}`, extension: "./extension", mimeExtension: "./mimeExtension" };
  return { name, version, description, license, jupyterlab: { extension: true, schemaDir: SCHEMAS, _build } };
}

function write(value) {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/**
 * JupyterLab calls `init` with the packages that it shares, and `get` with the names in `_build`. A package that
 * the application does not have is an empty object: its tokens are undefined, and the plugin does without.
 */
function container(name, externals, code) {
  return `(() => {
  let shared;
  let exports;
  const byAge = new Intl.Collator("en", { numeric: true }).compare;
  const take = async (name) => {
    const versions = shared[name];
    if (!versions) return {};
    const known = Object.keys(versions);
    const chosen = known.find((version) => versions[version].loaded) ?? known.sort(byAge).pop();
    return (await versions[chosen].get())();
  };
  const load = async () => {
    const names = ${JSON.stringify(externals)};
    const packages = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await take(name)])));
    const module = { exports: {} };
    ((module, exports, require) => {
${code}
    })(module, module.exports, (name) => packages[name]);
    return module.exports;
  };
  window._JUPYTERLAB ??= {};
  window._JUPYTERLAB[${JSON.stringify(name)}] = {
    init: (scope) => {
      shared ??= scope;
    },
    get: async (name) => {
      exports ??= load();
      const found = (await exports)[name.replace("./", "")];
      return () => found;
    },
  };
})();
`;
}
