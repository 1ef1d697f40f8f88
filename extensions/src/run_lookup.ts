// Asks a server whether it knows a run, before anything is drawn that would wait for it.
import type { Host } from "./host";

/** Tell whether the workbench's server extension answers there and has that run. */
export async function hasRun(host: Host, runId: string): Promise<boolean> {
  try {
    // One event: the run in full may be long.
    const answer = await host.request(`workbench/api/runs/${encodeURIComponent(runId)}/events?limit=1`);
    return answer.ok;
  } catch {
    return false; // no server, or one that cannot be reached from here
  }
}
