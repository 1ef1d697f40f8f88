import "./dom";
import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/preact";
import type { AttachedFile, TrialDetail } from "../src/types";
import { Attachments } from "../src/views/attachments";
import { buildController } from "./view_builder";

afterEach(cleanup);

const HOSTILE = '<img src=x onerror="globalThis.hacked = 1"><script>globalThis.hacked = 1</script>';

function file(change: Partial<AttachedFile>): AttachedFile {
  return { name: "words", kind: "table", step: 1, file: "0-00000-words.json", size_bytes: 10, ...change };
}

function trialWith(...attachments: AttachedFile[]): TrialDetail {
  return { number: 2, attachments } as unknown as TrialDetail;
}

test("a table is shown as text in cells, whatever it holds", async () => {
  const { controller, requests, reply } = buildController();
  reply({ columns: [HOSTILE, "share"], rows: [[HOSTILE, 0.5]], num_rows: 700 });
  const { container } = render(<Attachments controller={controller} trial={trialWith(file({}))} />);
  await waitFor(() => assert.equal(container.querySelector("td")?.textContent, HOSTILE));
  assert.equal(container.querySelector("th")!.textContent, HOSTILE);
  assert.equal(container.querySelectorAll("img, script").length, 0);
  assert.match(container.textContent, /the first 1 of 700 rows/);
  assert.equal(requests[0].path, "workbench/api/runs/a/trials/2/attachments/0-00000-words.json");
});

test("of several with one name the newest is shown, and the slider shows the others", async () => {
  const { controller, requests, reply } = buildController();
  const files = [1, 5, 9].map((step) => file({ kind: "text", step, file: `${step}.txt` }));
  reply("nine");
  const { container, rerender } = render(<Attachments controller={controller} trial={trialWith(...files)} />);
  await waitFor(() => assert.equal(container.querySelector("pre")?.textContent, '"nine"'));
  reply("five");
  fireEvent.input(screen.getByRole("slider"), { target: { value: "1" } });
  await waitFor(() => assert.equal(container.querySelector("pre")?.textContent, '"five"'));
  rerender(<Attachments controller={controller} trial={trialWith(...files, file({ step: 12, file: "12.txt" }))} />);
  assert.equal(container.querySelector("figcaption .workbench-number")!.textContent, "step 5");
  assert.deepEqual(
    requests.map((one) => one.path.split("/").at(-1)),
    ["9.txt", "5.txt"],
  );
});

test("a picture is an image with an address that has no origin, and one that is gone is named", async () => {
  const { controller, reply } = buildController();
  reply("picture");
  const picture = file({ kind: "image", name: "errors", file: "errors.svg" });
  const { container, rerender } = render(<Attachments controller={controller} trial={trialWith(picture)} />);
  await waitFor(() => assert.match(container.querySelector("img")?.src ?? "", /^data:/));
  assert.equal(container.querySelector("img")!.alt, "errors, step 1");
  reply({ problem: "trial 2 has no attachment 'x.png'" }, 404);
  rerender(<Attachments controller={controller} trial={trialWith(file({ kind: "image", file: "x.png" }))} />);
  await waitFor(() => assert.match(container.textContent, /has no attachment 'x.png'/));
});
