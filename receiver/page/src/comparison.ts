import type { Recording } from "./recording";
import { isNoise } from "./significance";
import { share, type View } from "./tree";
import { percent, points, rate, rateChange, whole } from "./words";

/** The values of something in both of what is compared, in events. */
export interface Values {
  now: number;
  before: number;
}

/** What events are divided by: all events of a side, or its time in seconds. */
function divisors({ events, base }: View): Values {
  return base?.seconds ?? { now: events, before: base?.events ?? 0 };
}

/** Both values as they are compared: shares of all events, or events a second. */
export function compared(view: View, { now, before }: Values): Values {
  const of = divisors(view);
  return { now: share(now, of.now), before: share(before, of.before) };
}

/** By how much a value is more than before. */
export function difference(view: View, values: Values): number {
  const { now, before } = compared(view, values);
  return now - before;
}

/** How a value changed, from -1, it is gone, to 1, it is new. */
export function change(view: View, values: Values): number {
  const { now, before } = compared(view, values);
  return share(now - before, now + before);
}

/** One side of a comparison in words. */
export function sideText(recording: Recording, { base }: View, value: number): string {
  return base?.seconds ? rate(recording, value) : percent(value);
}

/** A difference in words, with its sign. */
export function differenceText(recording: Recording, { base }: View, value: number): string {
  return base?.seconds ? rateChange(recording, value) : points(value);
}

/** Whether chance explains that a value changed, as one of so many that are compared. Only samples can be tested. */
export function isChance(recording: Recording, view: View, values: Values, comparisons: number): boolean {
  if (!recording.isOfCpus || !view.base) return false;
  const { now, before } = tested(view, values);
  const of = tested(view, divisors(view));
  return isNoise([Math.round(before), Math.round(now)], [of.before, of.now], comparisons);
}

/** What two sides have apart from one another: one that is a part of the other is tested against the rest of it. */
function tested({ base }: View, { now, before }: Values): Values {
  return base?.containsNow ? { now, before: before - now } : { now, before };
}

/** The numbers that a test of a value is of, in words. */
export function testedText(view: View, values: Values): string {
  const { now, before } = tested(view, values);
  return `${whole(Math.round(before))} against ${whole(Math.round(now))}`;
}

/** By view: of its nodes, 1 those whose change chance explains, 2 those that changed; 0: not tested yet. */
const known = new WeakMap<View, Uint8Array>();

/** Whether chance explains that a node changed, as one of all nodes. Kept: a graph is drawn often. */
export function isNodeChance(recording: Recording, view: View, node: number): boolean {
  let tests = known.get(view);
  if (!tests) known.set(view, (tests = new Uint8Array(view.count)));
  if (tests[node] === 0) {
    const values = { now: view.total[node], before: view.base?.total[node] ?? 0 };
    tests[node] = isChance(recording, view, values, view.count) ? 1 : 2;
  }
  return tests[node] === 1;
}
