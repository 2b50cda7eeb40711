import { signal } from "@preact/signals";
import { append, decode, type Document, forget } from "./document";
import { Recording } from "./recording";
import type { Range } from "./select";
import { range, recording, renew, unchosen } from "./state";

/** How much of the time that is held can be shown at a time, in seconds. */
export const SPANS = [10, 30, 60, 300];

/** How the page follows what is profiled. */
export type Following = "no" | "yes" | "paused" | "lost" | "ended";

export const following = signal<Following>("no");
/** Of the time that is held, how much is shown; 0: all of it. */
export const lastSeconds = signal(0);

const INTERVAL_MS = 1000;
/** The page works for a part of the time at the most: it shares the machine with what is profiled. */
const PAUSE_PER_WORK = 4;

let held: Document | null = null;

/** Fetches what is new, and shows it. */
async function ask() {
  const response = await fetch(`data/${held?.live?.next ?? "0"}`);
  if (!response.ok) throw new Error(`the profiler answers ${response.status}`);
  const more = decode(await response.arrayBuffer());
  held = held && !more.live!.is_whole ? append(held, more) : more;
  forget(held, held.live!.first_slice);
  return new Recording(held);
}

/** Begins to follow; returns the first recording. */
export async function begin(): Promise<Recording> {
  let first: Recording;
  // A receiver that starts has no window yet.
  for (;;) {
    try {
      first = await ask();
      break;
    } catch (error) {
      if (error instanceof TypeError) throw error;
      await wait(INTERVAL_MS);
    }
  }
  following.value = "yes";
  void follow();
  return first;
}

const wait = (ms: number) => new Promise((done) => setTimeout(done, ms));

async function follow() {
  let pauseMs = INTERVAL_MS;
  while (following.value !== "ended") {
    await wait(pauseMs);
    // Nobody looks, or wants anything new.
    if (following.value === "paused" || document.hidden) continue;
    const began = performance.now();
    try {
      const next = await ask();
      if (following.peek() === "paused") continue;
      show(next);
      following.value = next.live!.has_ended ? "ended" : "yes";
    } catch {
      following.value = "lost";
    }
    pauseMs = Math.max(INTERVAL_MS, (performance.now() - began) * PAUSE_PER_WORK);
  }
}

/** The range that was chosen for the user. */
let chosen: Range | null = null;

function show(next: Recording) {
  // Another one is the user's own choice.
  if (lastSeconds.value > 0 && range.value !== chosen) lastSeconds.value = 0;
  unchosen(() => {
    renew(next);
    if (lastSeconds.value > 0) showLast(lastSeconds.value);
  });
}

/** Shows the newest part of the time from now on; 0: all of it. */
export function showLast(seconds: number) {
  const { slices, sliceMs } = recording.value;
  lastSeconds.value = seconds;
  chosen = seconds > 0 ? { from: Math.max(0, slices - Math.round((seconds * 1e3) / sliceMs)), to: slices } : null;
  range.value = chosen;
}

/** Stops the picture, or lets it go on. What comes meanwhile is held. */
export function pause() {
  if (following.value === "paused") following.value = "yes";
  else if (following.value !== "ended") following.value = "paused";
}

/** Where a form of what is shown can be fetched; `null` where nobody serves it. */
export function address(suffix: string, from: number, to: number): string | null {
  const { firstSlice, live } = recording.value;
  return live ? `${firstSlice + from}-${firstSlice + to}${suffix}` : null;
}
