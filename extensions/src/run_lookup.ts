// Asks a server whether it knows a run, before anything is drawn that would wait for it.
import type { Host } from "./host";
import type { ViewState } from "./state";

/** Tell whether the workbench's server extension answers there and has that run. */
export async function hasRun(host: Host, runId: string): Promise<boolean> {
  try {
    return (await oneEvent(host, runId)).ok;
  } catch {
    return false; // no server, or one that cannot be reached from here
  }
}

/** What was seen last, without runs that this server's store does not have: a server before it may have had another. */
export async function withoutUnknownRuns(host: Host, seen: Partial<ViewState>): Promise<Partial<ViewState>> {
  const { run, compared = [] } = seen;
  const unknown = new Set<string>();
  const look = async (runId: string): Promise<void> => {
    if ((await oneEvent(host, runId)).status === 404) unknown.add(runId);
  };
  await Promise.allSettled([...new Set(run ? [run, ...compared] : compared)].map(look));
  if (!unknown.size) return seen;
  const isGone = run != null && unknown.has(run);
  return {
    ...seen,
    ...(isGone ? { run: null, trial: null } : {}),
    compared: compared.filter((one) => !unknown.has(one)),
  };
}

/** One event: the run in full may be long. */
function oneEvent(host: Host, runId: string): Promise<Response> {
  return host.request(`workbench/api/runs/${encodeURIComponent(runId)}/events?limit=1`);
}
