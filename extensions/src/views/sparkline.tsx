// A curve so small that it needs no axes: how the best value of a run improved.
const WIDTH = 60;
const HEIGHT = 16;
const MARGIN = 2;

export function Sparkline({ values }: { values: readonly number[] }) {
  if (values.length < 2) return null;
  return (
    <svg class="workbench-spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} aria-hidden="true">
      <polyline points={pointsOf(values)} />
    </svg>
  );
}

/** The best value stays until a trial is better: a stair. */
export function pointsOf(values: readonly number[]): string {
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  const x = (index: number) => MARGIN + (index / (values.length - 1)) * (WIDTH - 2 * MARGIN);
  const y = (value: number) => HEIGHT - MARGIN - ((value - low) / span) * (HEIGHT - 2 * MARGIN);
  return values
    .flatMap((value, index) => {
      const corner = index ? [`${short(x(index))},${short(y(values[index - 1]))}`] : [];
      return [...corner, `${short(x(index))},${short(y(value))}`];
    })
    .join(" ");
}

function short(value: number): string {
  return String(Math.round(value * 10) / 10);
}
