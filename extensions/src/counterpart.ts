// Which metric of training belongs to which of validation.

const PREFIXES = ["val_", "valid_", "validation_", "eval_", "test_"];

/** The metric of training for one of validation, and the other way round; null where none was reported. */
export function counterpartOf(metric: string, reported: readonly string[]): string | null {
  const validated = PREFIXES.find((prefix) => metric.startsWith(prefix));
  const stem = validated ? metric.slice(validated.length) : metric.replace(/^train_/, "");
  const others = validated ? [`train_${stem}`, stem] : PREFIXES.map((prefix) => prefix + stem);
  return others.find((name) => reported.includes(name)) ?? null;
}
