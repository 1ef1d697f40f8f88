// A host for pages outside JupyterLab: the page's own cookies, and the XSRF token that is among them.
import type { Host } from "./host";

export function hostOf(baseUrl: string): Host {
  const address = new URL(baseUrl, location.href);
  return {
    baseUrl: address.pathname,
    webSocketUrl: address.href.replace(/^http/, "ws"),
    request: (path, init = {}) =>
      fetch(address.pathname + path, {
        ...init,
        credentials: "same-origin",
        headers: { ...init.headers, "X-XSRFToken": cookie("_xsrf") },
      }),
    ...window.workbenchHost,
  };
}

function cookie(name: string): string {
  const found = document.cookie.split("; ").find((one) => one.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
}
