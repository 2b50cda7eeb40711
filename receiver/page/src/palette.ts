import type { Recording } from "./recording";

const rgb = (channels: number[]) => `rgb(${channels.map(Math.round).join(",")})`;

/** The colour of what is no function: the whole, a process, a thread, a span. */
export const PLACE = "#cfcbc2";

/** The colour of each function: its kind's, a little lighter or darker by its name, so that neighbours part. */
export function shades(recording: Recording): string[] {
  return recording.functions.name.map((name, label) => {
    let hash = 0x811c9dc5;
    for (let at = 0; at < name.length; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 0x01000193);
    const factor = (92 + ((hash >>> 8) % 15)) / 100;
    return rgb(recording.kinds[recording.functions.kind[label]].colour.map((channel) => Math.min(255, channel * factor)));
  });
}

// Blue and orange stay apart for every kind of colour blindness; dark text is readable on all of it.
const SAME = [226, 224, 219];
const LESS = [98, 168, 229];
const MORE = [240, 142, 60];

/** The colour between blue, much less than before, and orange, much more: -1 to 1. */
export function differenceColour(change: number): string {
  const [to, weight] = [change < 0 ? LESS : MORE, Math.min(1, Math.abs(change))];
  return rgb(SAME.map((channel, at) => channel + (to[at] - channel) * weight));
}
