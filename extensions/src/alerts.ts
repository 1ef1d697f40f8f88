// Which lines of the log need attention, and which of them notify the user, each once.
import type { Level } from "./host";
import type { LogLine } from "./types";

/** How many lines after what it is about an alert may stand: it is stored together with that. */
const NEAR = 3;

export function isAlert(line: LogLine): boolean {
  return line.alert === true || line.level === "warning" || line.level === "error";
}

/** Leaves out a line that an alert right after it repeats: nothing is shown twice. */
export function notificationsAmong(lines: LogLine[]): LogLine[] {
  const alerts = lines.filter((line) => line.alert);
  const isSpokenOf = (line: LogLine) =>
    alerts.some((alert) => alert.trial === line.trial && alert.seq > line.seq && alert.seq - line.seq <= NEAR);
  return lines.filter((line) => isAlert(line) && (line.alert || !isSpokenOf(line)));
}

export function levelOf(line: LogLine): Level {
  return line.level === "error" || line.level === "warning" ? line.level : "success";
}
