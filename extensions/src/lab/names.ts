// Names that JupyterLab knows the workbench by; the schema's file name follows from the plugin's id.
export const PLUGIN_ID = "@workbench/lab:plugin";
export const MIME_PLUGIN_ID = "@workbench/lab:output";
export const RUN_MIME_TYPE = "application/vnd.workbench.run+json";
export const FORM_MIME_TYPE = "application/vnd.workbench.form+json";
export const WIDGET_MIME_TYPE = "application/vnd.jupyter.widget-view+json";

export const COMMANDS = {
  open: "workbench:open",
  openRun: "workbench:open-run",
  showPanel: "workbench:show-panel",
  start: "workbench:start",
  form: "workbench:new-form",
  tiers: "workbench:tiers",
} as const;
