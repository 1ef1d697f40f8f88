// What differs between the places where the view is shown: JupyterLab, notebook output, widget, page.

/** info: an answer to somebody; the others: something that somebody may want to know, or not. */
export type Level = "info" | "success" | "warning" | "error";

declare global {
  interface Window {
    /** What the page around a widget can do, such as opening tabs. */
    workbenchHost?: Partial<Host>;
  }
}

export interface Host {
  /** Ends with "/". */
  baseUrl: string;
  /** Ends with "/". */
  webSocketUrl: string;
  /** Sends a request that is authenticated and carries the XSRF token; `path` is below `baseUrl`. */
  request(path: string, init?: RequestInit): Promise<Response>;
  /** Appended as ?token= only where the host does so itself. */
  webSocketToken?: string;
  /** Opens a connection of another kind than a WebSocket. */
  openSocket?(url: string): WebSocket;
  /** Opens a run in a tab of its own, or shows the one that has it; absent: within the view. */
  openRun?(runId: string, isBeside?: boolean): void;
  /** Shows the tab that has a run, if there is one, and returns whether. */
  revealRun?(runId: string): boolean;
  /** Opens a tab with a file of tiers, or with the list of them for an empty path; absent: within the view. */
  openTiers?(path: string): void;
  /** Opens a file of the server's folder; absent: there is no place for it. */
  openFile?(path: string): void;
  /** Opens a form in a new notebook, with the experiment of a file; absent: there are no notebooks. */
  openForm?(path?: string): void;
  /** Tells a person something; absent: the view's own status line. */
  notify?(message: string, level: Level): void;
}
