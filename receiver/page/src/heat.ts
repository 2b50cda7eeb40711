import type { Recording } from "./recording";

/** CPU time of each thread over time, in as many columns as there is room for. Where no times are known: shares of samples. */
export interface Heat {
  columns: number;
  /** Threads, the busiest first. */
  threads: number[];
  /** For each of them, the share of one CPU in each column. */
  rows: Float64Array[];
  /** The same of all threads together: CPUs. */
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
  // Events that one CPU makes in a column, which may hold a slice more than its neighbour.
  const perColumn = Float64Array.from({ length: columns }, (_, column) => {
    const first = Math.ceil((column * slices) / columns);
    const after = Math.ceil(((column + 1) * slices) / columns);
    return sliceMs > 0 ? ((after - first) * sliceMs * 1e6) / recording.periodNs : all[column] || 1;
  });
  const shares = (of: Float64Array) => of.map((count, column) => count / perColumn[column]);
  const sum = (of: Float64Array) => of.reduce((whole, part) => whole + part, 0);
  const sorted = [...events].map(([thread, of]) => ({ thread, of, sum: sum(of) })).sort((a, b) => b.sum - a.sum);
  const cpus = shares(all);
  return {
    columns,
    threads: sorted.map(({ thread }) => thread),
    rows: sorted.map(({ of }) => shares(of)),
    all: cpus,
    most: cpus.reduce((most, one) => Math.max(most, one), 0),
  };
}
