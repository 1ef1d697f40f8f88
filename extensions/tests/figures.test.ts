import assert from "node:assert/strict";
import { test } from "node:test";
import { themed, type Figure } from "../src/figures";
import type { Theme } from "../src/theme";

const LIGHT = { name: "light", ink: "rgba(0,0,0,1)", surface: "rgba(255,255,255,1)", states: {} } as unknown as Theme;
const DARK = { ...LIGHT, name: "dark", ink: "rgba(255,255,255,1)", surface: "rgba(0,0,0,1)" } as Theme;
const SCALE = ["#f3d27a", "#2f2c7a"];
const FIGURE = {
  data: [{ name: "#2f2c7a", marker: { colorscale: SCALE }, line: { color: "rgb(47, 44, 122)" } }],
  layout: {},
} as Figure;

interface Trace {
  name: string;
  marker: { colorscale: string[] };
  line: { color: string };
}

test("colours that are almost black are lighter on a dark ground, and as they are on a light one", () => {
  assert.deepEqual(themed(FIGURE, LIGHT, "").data, FIGURE.data);
  const [trace] = themed(FIGURE, DARK, "").data as Trace[];
  assert.equal(trace.name, "#2f2c7a", "a name is no colour");
  assert.equal(trace.marker.colorscale[0], "#f3d27a");
  const [, lightened] = trace.marker.colorscale;
  assert.equal(lightened, trace.line.color);
  const [red, green, blue] = lightened.match(/\d+/g)!.map(Number);
  assert.ok(blue > red && red >= green && red > 90, lightened);
});
