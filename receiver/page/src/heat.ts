import { type Recording, RUNNING } from "./recording";
import type { Range, Selection } from "./select";
import { wanted } from "./select";

/** States of threads in the order in which they are drawn, from below. The first is for what says no state. */
export const STATES = ["", RUNNING, "runnable", "uninterruptible", "sleeping", "stopped"] as const;

/** By state of `STATES`, where there is any of it: a value for each column. */
export type Columns = (Float64Array | undefined)[];

/** What each thread did over time, in as many columns as there is room for. Where no times are known: shares of samples. */
export interface Heat {
  columns: number;
  /** Threads, the busiest first. */
  threads: number[];
  /** By thread and state: the share of one CPU, or of the time, in each column; of what is neither, the share of the most in a column. */
  rows: Columns[];
  /** All threads together, by state: CPUs; of what is no time on CPUs, the value. */
  all: Columns;
  /** The most of `all` in a column. */
  most: number;
}

const COLUMNS_MAX = 400;

/** The slices of a column: each begins where its first slice does. */
export function slicesOf(column: number, { columns }: Pick<Heat, "columns">, { slices }: Recording): Range {
  return { from: Math.ceil((column * slices) / columns), to: Math.ceil(((column + 1) * slices) / columns) };
}

/** The place in `STATES` of each state of a recording, counted from 1. */
export function placesOfStates({ states, isOfStates }: Recording): Uint8Array {
  const place = (state: string) => Math.max(0, STATES.indexOf(state as (typeof STATES)[number]));
  return Uint8Array.of(0, ...states.state.map((state) => (isOfStates ? place(state) : 0)));
}

/** What all states have in a column. */
export function sumAt(of: Columns, column: number): number {
  return of.reduce((sum, ofState) => sum + (ofState ? ofState[column] : 0), 0);
}

/** Adds up a recording by thread, state and time. Threads that have none of the selected states are there, too. */
export function heatOf(recording: Recording, states: Selection["states"]): Heat {
  const { samples, slices, sliceMs, isOfStates } = recording;
  const columns = Math.max(1, Math.min(slices, COLUMNS_MAX));
  const placeOf = placesOfStates(recording);
  const isWanted = wanted(recording, { threads: null, states });
  const byThread = new Map<number, { of: Columns; sum: number; busy: number }>();
  const all: Columns = [];
  for (let row = 0; row < samples.count; row++) {
    const [events, place] = [samples.events[row], placeOf[samples.state[row]]];
    let thread = byThread.get(samples.thread[row]);
    if (!thread) byThread.set(samples.thread[row], (thread = { of: [], sum: 0, busy: 0 }));
    thread.sum += events;
    if (STATES[place] === RUNNING || STATES[place] === "runnable") thread.busy += events;
    if (!isWanted(row)) continue;
    const ofThread = (thread.of[place] ??= new Float64Array(columns));
    const ofAll = (all[place] ??= new Float64Array(columns));
    const [first, last] = [samples.first[row], samples.slice[row]];
    const columnOf = (slice: number) => Math.floor((slice * columns) / slices);
    for (let column = columnOf(first); column <= columnOf(last); column++) {
      const part = first === last ? events : events * recording.within(row, slicesOf(column, { columns }, recording));
      ofThread[column] += part;
      ofAll[column] += part;
    }
  }
  const perColumnOf = (value: (column: number) => number) => Float64Array.from({ length: columns }, (_, column) => value(column));
  const mostOf = (of: Columns) => perColumnOf((column) => sumAt(of, column)).reduce((most, sum) => Math.max(most, sum), 0);
  const mostOfThread = [...byThread.values()].reduce((most, { of }) => Math.max(most, mostOf(of)), 0) || 1;
  // Events of the whole time of a column, which may hold a slice more than its neighbour. A wait whose state is not known is an
  // event at its end, so that its time may be longer than its column.
  const perColumn = perColumnOf((column) => {
    const { from, to } = slicesOf(column, { columns }, recording);
    if (sliceMs === 0) return sumAt(all, column) || 1;
    return recording.isOfCpus || isOfStates ? ((to - from) * sliceMs * 1e6) / recording.periodNs : mostOfThread;
  });
  const shares = (of: Columns): Columns => of.map((ofState) => ofState?.map((count, column) => count / perColumn[column]));
  const sorted = [...byThread].sort(([, a], [, b]) => b.busy - a.busy || b.sum - a.sum);
  const together = sliceMs > 0 && !recording.isOfCpus ? all : shares(all);
  return {
    columns,
    threads: sorted.map(([thread]) => thread),
    rows: sorted.map(([, { of }]) => shares(of)),
    all: together,
    most: mostOf(together),
  };
}

/** The time in each state of a recording, counted from 1, within a range and of some threads. */
export function timesOfStates(recording: Recording, range: Range | null, threads: Selection["threads"]): Float64Array {
  const { samples, states } = recording;
  const times = new Float64Array(states.state.length + 1);
  const isWanted = wanted(recording, { threads, states: null });
  for (let row = 0; row < samples.count; row++) {
    if (isWanted(row)) times[samples.state[row]] += samples.events[row] * (range ? recording.within(row, range) : 1);
  }
  return times;
}
