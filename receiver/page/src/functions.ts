import type { View } from "./tree";

/** What each function did itself, and what it caused, recursion counted once. By label. */
export interface Totals {
  own: Float64Array;
  total: Float64Array;
}

/** One function in a table. */
export interface Row {
  label: number;
  own: number;
  total: number;
  /** The same of what is compared with. */
  baseOwn: number;
  baseTotal: number;
}

/** The functions of a view, in no order. */
export function functionsOf(view: View, functionCount: number): Row[] {
  const { own, total } = sum(view, view.own, view.total, functionCount);
  const base = view.base && sum(view, view.base.own, view.base.total, functionCount);
  const rows: Row[] = [];
  for (let label = 0; label < functionCount; label++) {
    const [baseOwn, baseTotal] = base ? [base.own[label], base.total[label]] : [0, 0];
    if (total[label] > 0 || baseTotal > 0) rows.push({ label, own: own[label], total: total[label], baseOwn, baseTotal });
  }
  return rows;
}

function sum(view: View, ownOfNode: Float64Array, totalOfNode: Float64Array, functionCount: number): Totals {
  const labels = functionCount + view.groups.length;
  const own = new Float64Array(labels);
  const total = new Float64Array(labels);
  const onPath = new Int32Array(labels);
  const path: number[] = [];
  for (let node = 1; node < view.count; node++) {
    while (path.length >= view.depth[node]) onPath[path.pop()!]--;
    const label = view.label[node];
    own[label] += ownOfNode[node];
    if (onPath[label]++ === 0) total[label] += totalOfNode[node];
    path.push(label);
  }
  return { own, total };
}
