import assert from "node:assert/strict";
import { test } from "node:test";
import type { Host } from "../src/host";
import { withoutUnknownRuns } from "../src/run_lookup";

function hostWith(known: string[], isDown = false): Host {
  const request = (path: string): Promise<Response> => {
    if (isDown) return Promise.reject(new Error("no network"));
    const run = /runs\/([^/]+)\//.exec(path)![1];
    return Promise.resolve(new Response("", { status: known.includes(run) ? 200 : 404 }));
  };
  return { baseUrl: "/", webSocketUrl: "ws://localhost/", request };
}

test("what was left with another store is opened without the runs of that store", async () => {
  const seen = { run: "gone", trial: 3, compared: ["here", "gone"], figure: "slice" };
  assert.deepEqual(await withoutUnknownRuns(hostWith(["here"]), seen), {
    run: null,
    trial: null,
    compared: ["here"],
    figure: "slice",
  });
});

test("what this server knows is opened as it was left, and all of it while the server does not answer", async () => {
  const seen = { run: "here", trial: 3, compared: ["here"] };
  assert.deepEqual(await withoutUnknownRuns(hostWith(["here"]), seen), seen);
  assert.deepEqual(await withoutUnknownRuns(hostWith([], true), seen), seen);
  assert.deepEqual(await withoutUnknownRuns(hostWith([]), {}), {});
});
