import assert from "node:assert/strict";
import { test } from "node:test";
import { sameAs, type Asked, type Same } from "../src/same";
import examples from "./same.json";

for (const { asked, command, python } of examples as unknown as ({ asked: Asked } & Same)[]) {
  test(`the form of ${asked.kind} shows what the server does: ${command}`, () => {
    assert.deepEqual(sameAs(asked), { command, python });
  });
}
