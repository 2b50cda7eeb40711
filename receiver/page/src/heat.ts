import type { Recording } from "./recording";

/** What each thread did over time, in as many columns as there is room for. Where no times are known: shares of samples. */
export interface Heat {
  columns: number;
  /** Threads, the busiest first. */
  threads: number[];
  /** For each of them, the share of one CPU in each column; of what is no time on CPUs, the share of the most in a column. */
  rows: Float64Array[];
  /** All threads together: CPUs; of what is no time on CPUs, the value. */
  all: Float64Array;
  /** The most of `all`. */
  most: number;
}

const COLUMNS_MAX = 400;

/** Adds up a recording by thread and time. */
export function heatOf(recording: Recording): Heat {
  const { samples, slices, sliceMs } = recording;
  const columns = Math.max(1, Math.min(slices, COLUMNS_MAX));
  const events = new Map<number, Float64Array>();
  const all = new Float64Array(columns);
  for (let row = 0; row < samples.count; row++) {
    const column = Math.floor((samples.slice[row] * columns) / slices);
    let of = events.get(samples.thread[row]);
    if (!of) events.set(samples.thread[row], (of = new Float64Array(columns)));
    of[column] += samples.events[row];
    all[column] += samples.events[row];
  }
  const mostOf = (of: Float64Array) => of.reduce((most, one) => Math.max(most, one), 0);
  const mostOfThread = [...events.values()].reduce((most, of) => Math.max(most, mostOf(of)), 0) || 1;
  // Events that one CPU makes in a column, which may hold a slice more than its neighbour. A wait is an event at its end, so that
  // its time may be longer than its column.
  const perColumn = Float64Array.from({ length: columns }, (_, column) => {
    const first = Math.ceil((column * slices) / columns);
    const after = Math.ceil(((column + 1) * slices) / columns);
    if (sliceMs === 0) return all[column] || 1;
    return recording.isOfCpus ? ((after - first) * sliceMs * 1e6) / recording.periodNs : mostOfThread;
  });
  const shares = (of: Float64Array) => of.map((count, column) => count / perColumn[column]);
  const sum = (of: Float64Array) => of.reduce((whole, part) => whole + part, 0);
  const sorted = [...events].map(([thread, of]) => ({ thread, of, sum: sum(of) })).sort((a, b) => b.sum - a.sum);
  const together = sliceMs > 0 && !recording.isOfCpus ? all : shares(all);
  return {
    columns,
    threads: sorted.map(({ thread }) => thread),
    rows: sorted.map(({ of }) => shares(of)),
    all: together,
    most: mostOf(together),
  };
}
