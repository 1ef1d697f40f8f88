// What JupyterLab offers the view: its connection to the server, with cookies, XSRF and tokens as Lab has them.
// What else a host can do (tabs, editor, notifications) is offered by the plugin that has the services for it, and
// is used by notebook outputs, too.
import { ServerConnection } from "@jupyterlab/services";

import type { Host } from "../host";

let offered: Partial<Host> = {};

/** Let every host made from now on do these things. */
export function offer(services: Partial<Host>): void {
  offered = services;
  // Widgets come with the kernel and know of JupyterLab only what is left for them.
  window.workbenchHost = services;
}

/** Make a host out of Lab's own connection settings; every URL follows from the base URL in them. */
export function labHost(): Host {
  const settings = ServerConnection.makeSettings();
  return {
    baseUrl: settings.baseUrl,
    webSocketUrl: settings.wsUrl,
    webSocketToken: settings.appendToken && settings.token ? settings.token : undefined,
    request: (path, init = {}) => ServerConnection.makeRequest(new URL(path, settings.baseUrl).href, init, settings),
    ...offered,
  };
}
