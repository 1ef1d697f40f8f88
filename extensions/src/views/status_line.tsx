// One line that says what came of an action, and whether the view still hears the server.
import { useEffect } from "preact/hooks";
import type { Controller } from "../controller";
import type { Connection } from "../transport";

const WORDS: Partial<Record<Connection, string>> = {
  waiting: "The server does not respond; retrying …",
  polling: "Live connections are blocked; polling the server every 1.5 s.",
  refused: "The server refused access; sign in again.",
};
const SHOWN_FOR_MS = 8000;

export function StatusLine({ controller }: { controller: Controller }) {
  const { status, connection, connectionMessage } = controller.state;
  useEffect(() => {
    if (!status || status.level === "error") return;
    const timer = setTimeout(() => controller.clearStatus(), SHOWN_FOR_MS);
    return () => clearTimeout(timer);
  }, [status]);
  const words = connectionMessage || WORDS[connection];
  return (
    <div class="workbench-status" role="status" aria-live="polite">
      {words ? <p class="workbench-status-connection">{words}</p> : null}
      {status ? (
        <p class={`workbench-status-${status.level}`}>
          <span>{status.message}</span>
          <button type="button" class="workbench-quiet" aria-label="Dismiss" onClick={() => controller.clearStatus()}>
            ✕
          </button>
        </p>
      ) : null}
    </div>
  );
}
