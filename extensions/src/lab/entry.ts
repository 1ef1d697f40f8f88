// What the built file of the extension gives to JupyterLab, by the names in its package.json.
import plugin from "./index";
import output from "./mime";

export const extension = { __esModule: true, default: plugin };
export const mimeExtension = { __esModule: true, default: output };
