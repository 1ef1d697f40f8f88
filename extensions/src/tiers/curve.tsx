// A small chart of what thresholds give, with a line at the one that is chosen; a click chooses another.

export interface Series {
  name?: string;
  /** One for each threshold; null where it grows without end. */
  values: (number | null)[];
}

interface CurveProps {
  title: string;
  series: Series[];
  /** The thresholds, in words. */
  labels: string[];
  place: number;
  isFromZero: boolean;
  /** A value with a dashed line, where the chart reaches it. */
  limit?: number;
  write(value: number): string;
  onPlace(place: number): void;
}

const WIDTH = 300;
const HEIGHT = 110;
const TOP = 6;

export function Curve({ title, series, labels, place, isFromZero, limit, write, onPlace }: CurveProps) {
  const known = series.flatMap((one) => one.values.filter((value): value is number => value !== null));
  const high = Math.max(...known, isFromZero ? 1e-12 : -Infinity);
  const low = isFromZero ? 0 : Math.min(...known);
  const span = high - low || 1;
  const last = Math.max(1, labels.length - 1);
  const x = (at: number) => (at / last) * WIDTH;
  const y = (value: number) => TOP + (1 - (value - low) / span) * (HEIGHT - 2 * TOP);
  const choose = (event: MouseEvent & { currentTarget: Element }) => {
    const box = event.currentTarget.getBoundingClientRect();
    if (box.width) onPlace(Math.min(last, Math.max(0, Math.round(((event.clientX - box.left) / box.width) * last))));
  };
  const words = series.map(({ name, values }) => {
    const value = values[place];
    return `${name ? `${name} ` : ""}${value === null ? "without end" : write(value)}`;
  });
  return (
    <figure class="workbench-tiers-curve">
      <figcaption>
        <span>{title}</span>
        <span class="workbench-muted">
          {series.map(({ name }, at) => (
            <span key={at} class="workbench-tiers-key" data-series={name ? at : undefined}>
              {words[at]}
            </span>
          ))}
        </span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title} by exit threshold, at ${labels[place]}: ${words.join(", ")}`}
        onClick={choose}
      >
        <line class="workbench-tiers-chosen" x1={x(place)} x2={x(place)} y1="0" y2={HEIGHT} />
        {limit !== undefined && limit <= high ? (
          <line class="workbench-tiers-limit" x1="0" x2={WIDTH} y1={y(limit)} y2={y(limit)} />
        ) : null}
        {series.map(({ values }, at) =>
          partsOf(values).map((part) => (
            <polyline
              key={`${at} ${part[0][0]}`}
              data-series={at}
              points={part.map(([number, value]) => `${x(number).toFixed(1)},${y(value).toFixed(1)}`).join(" ")}
            />
          )),
        )}
      </svg>
      <div class="workbench-tiers-ends" aria-hidden="true">
        <span>{labels[0]}</span>
        <span>
          {write(low)}
          {known.some((value) => value !== low) ? ` to ${write(high)}` : ""}
        </span>
        <span>{labels.at(-1)}</span>
      </div>
    </figure>
  );
}

/** The parts of a series without gaps, as places and values. */
export function partsOf(values: (number | null)[]): [number, number][][] {
  const parts: [number, number][][] = [];
  let isOpen = false;
  values.forEach((value, at) => {
    if (value === null) isOpen = false;
    else if (isOpen) parts[parts.length - 1].push([at, value]);
    else {
      parts.push([[at, value]]);
      isOpen = true;
    }
  });
  return parts;
}
