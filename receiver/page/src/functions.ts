import type { View } from "./tree";

/** One function or binary in a table, by its number. */
export interface Row {
  label: number;
  /** Events that ended in it. */
  own: number;
  /** Events with it on their stack, each once. */
  total: number;
  /** The same of what is compared with. */
  baseOwn: number;
  baseTotal: number;
}

/** What labels stand for, such as functions or binaries, that has any events, in no order. -1: nothing. */
export function rowsOf(view: View, numberOf: (label: number) => number, count: number): Row[] {
  const now = sum(view, view.own, view.total, numberOf, count);
  const before = view.base && sum(view, view.base.own, view.base.total, numberOf, count);
  const rows: Row[] = [];
  for (let label = 0; label < count; label++) {
    const [baseOwn, baseTotal] = before ? [before.own[label], before.total[label]] : [0, 0];
    if (now.total[label] > 0 || baseTotal > 0) rows.push({ label, own: now.own[label], total: now.total[label], baseOwn, baseTotal });
  }
  return rows;
}

function sum(view: View, ownOfNode: Float64Array, totalOfNode: Float64Array, numberOf: (label: number) => number, count: number) {
  const own = new Float64Array(count);
  const total = new Float64Array(count);
  const onPath = new Int32Array(count);
  const path: number[] = [];
  for (let node = 1; node < view.count; node++) {
    while (path.length >= view.depth[node]) {
      const left = path.pop()!;
      if (left >= 0) onPath[left]--;
    }
    const number = numberOf(view.label[node]);
    path.push(number);
    if (number < 0) continue;
    own[number] += ownOfNode[node];
    if (onPath[number]++ === 0) total[number] += totalOfNode[node];
  }
  return { own, total };
}
