// Lines that lie on each other: the last one would hide the others, so that it leaves gaps in which they are seen.
import type { Curve } from "./curve";
import type { Line } from "./drawing";

/**
 * The same lines, of which those that another one of a different colour continues, or equals, are drawn over that one
 * in stripes.
 */
export function withStripes(lines: Line[]): Line[] {
  const groups = groupsOf(
    lines.filter((line) => !line.dashed && !line.dotted && !line.silent && line.curve.length > 1),
  );
  const drawn = [...lines];
  for (const group of groups) {
    const colours = [...new Set(group.map(({ colour }) => colour))];
    if (colours.length < 2) continue;
    const places = group.map((line) => lines.indexOf(line)).sort((one, other) => one - other);
    group.forEach((line, index) => {
      const stripe: Line["stripe"] = [colours.indexOf(line.colour), colours.length];
      drawn[places[index]] = stripe[0] ? { ...line, stripe } : line;
    });
  }
  return drawn;
}

/** Lines of which the first one contains all others, which are as long or shorter. */
function groupsOf(lines: Line[]): Line[][] {
  const groups = new Map<string, Line[][]>();
  const byLength = (one: Line, other: Line) => other.curve.length - one.curve.length || endOf(other) - endOf(one);
  for (const line of [...lines].sort(byLength)) {
    const { x, y } = line.curve;
    const key = line.stepped ? `stair ${x[0]} ${y[0]}` : [x[0], y[0], x[1], y[1]].join(" ");
    const known = groups.get(key) ?? [];
    const group = known.find(([longest]) => begins(longest, line));
    if (group) group.push(line);
    else known.push([line]);
    groups.set(key, known);
  }
  return [...groups.values()].flat();
}

function begins({ curve: longer }: Line, { curve, stepped }: Line): boolean {
  for (let index = 0; index < curve.length; index += 1) {
    const isSame = Object.is(longer.x[index], curve.x[index]) && Object.is(longer.y[index], curve.y[index]);
    if (!isSame && !(stepped && index === curve.length - 1 && isOnStep(longer, curve, index))) return false;
  }
  return true;
}

/** Whether the end of a stair is on the last step that it shares with another one. */
function isOnStep(longer: Curve, { x, y }: Curve, index: number): boolean {
  return index > 0 && Object.is(y[index], longer.y[index - 1]) && x[index] < longer.x[index];
}

function endOf({ curve: { x, length } }: Line): number {
  return x[length - 1];
}
