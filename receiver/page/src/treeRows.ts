import type { View } from "./tree";

/** A row of the call tree: a function as reached from its callers, or, bottom-up, as the caller of what is above it. */
export interface TreeRow {
  label: number;
  /** The labels from the outermost row to this one. */
  path: number[];
  parent: TreeRow | null;
  own: number;
  total: number;
  baseOwn: number;
  baseTotal: number;
  /** The nodes of the view that it stands for. */
  nodes: number[];
  /** Bottom-up: the events of each of the nodes that ended at the function on top. */
  weights: Float64Array | null;
  baseWeights: Float64Array | null;
}

/** The functions that call nobody's: the outermost ones, or, bottom-up, those in which events ended. */
export function rootRows(view: View, isInverted: boolean): TreeRow[] {
  if (!isInverted) return childRows(view, topRow(view));
  const nodes: number[] = [];
  for (let node = 1; node < view.count; node++) if (view.own[node] > 0 || (view.base?.own[node] ?? 0) > 0) nodes.push(node);
  const own = Float64Array.from(nodes, (node) => view.own[node]);
  const base = view.base;
  const rows = grouped(view, null, nodes, own, base && Float64Array.from(nodes, (node) => base.own[node]));
  rows.forEach((row) => ([row.own, row.baseOwn] = [row.total, row.baseTotal]));
  return rows;
}

function topRow(view: View): TreeRow {
  return row(view, null, -1, [0]);
}

function row(view: View, parent: TreeRow | null, label: number, nodes: number[]): TreeRow {
  const sum = (of: Float64Array | undefined) => (of ? nodes.reduce((sum, node) => sum + of[node], 0) : 0);
  return {
    label, parent, nodes, weights: null, baseWeights: null,
    path: parent ? [...parent.path, label] : [label],
    own: sum(view.own), total: sum(view.total), baseOwn: sum(view.base?.own), baseTotal: sum(view.base?.total),
  };
}

/** What a row called, or, bottom-up, who called it. */
export function childRows(view: View, of: TreeRow): TreeRow[] {
  if (of.weights) {
    const above: number[] = [];
    const at: number[] = [];
    of.nodes.forEach((node, position) => {
      if (view.parent[node] > 0) {
        above.push(view.parent[node]);
        at.push(position);
      }
    });
    const pick = (from: Float64Array) => Float64Array.from(at, (position) => from[position]);
    return grouped(view, of, above, pick(of.weights), of.baseWeights && pick(of.baseWeights));
  }
  const byLabel = new Map<number, number[]>();
  for (const node of of.nodes) {
    for (let child = node + 1; child < view.end[node]; child = view.end[child]) {
      const same = byLabel.get(view.label[child]);
      if (same) same.push(child);
      else byLabel.set(view.label[child], [child]);
    }
  }
  const parent = of.label < 0 ? null : of;
  return [...byLabel].map(([label, nodes]) => row(view, parent, label, nodes));
}

/** Whether a row has rows below it. */
export function hasChildren(view: View, { nodes, weights }: TreeRow): boolean {
  return nodes.some((node) => (weights ? view.parent[node] > 0 : view.end[node] > node + 1));
}

/** Bottom-up rows: these nodes by their functions. */
function grouped(view: View, parent: TreeRow | null, nodes: number[], weights: Float64Array, base: Float64Array | null): TreeRow[] {
  const byLabel = new Map<number, number[]>();
  nodes.forEach((node, position) => {
    const same = byLabel.get(view.label[node]);
    if (same) same.push(position);
    else byLabel.set(view.label[node], [position]);
  });
  return [...byLabel].map(([label, positions]) => {
    const pick = (from: Float64Array) => Float64Array.from(positions, (position) => from[position]);
    const sum = (of: Float64Array | null) => of?.reduce((sum, value) => sum + value, 0) ?? 0;
    const [own, baseOwn] = [pick(weights), base && pick(base)];
    return {
      label, parent, nodes: positions.map((position) => nodes[position]), weights: own, baseWeights: baseOwn,
      path: parent ? [...parent.path, label] : [label], own: 0, total: sum(own), baseOwn: 0, baseTotal: sum(baseOwn),
    };
  });
}
