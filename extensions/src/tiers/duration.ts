// Response times in words.
import { formatDuration } from "../format";

/** Writes a response time, which is null where a queue grows without end. */
export function durationOf(seconds: number | null | undefined): string {
  return seconds == null ? "without end" : formatDuration(seconds);
}
