/** A tree in the order of a walk: each node stands before what it called. Node 0 is the root, which has no label. */
export interface Tree {
  count: number;
  /** A function, or from the number of functions on a group; -1 for the root. */
  label: Int32Array;
  /** -1 for the root. */
  parent: Int32Array;
  depth: Int32Array;
  /** One past the last node at or below. */
  end: Int32Array;
}

/** A tree with the events that were selected, ready to be drawn. */
export interface View extends Tree {
  /** Events that ended here. */
  own: Float64Array;
  /** Events at or below. */
  total: Float64Array;
  /** The same of what is compared with; `null` where nothing is. */
  base: ({ own: Float64Array; total: Float64Array; events: number } & Comparison) | null;
  /** What widths are in proportion to: events; where two selections are compared, the mean of both shares or rates. */
  value: Float64Array;
  /** Events of everything. */
  events: number;
  /** The names of groups, whose labels come after the functions'. */
  groups: string[];
  /** The node of the recording's tree that a node is, -1: none; `null` where no node is one. */
  source: ((node: number) => number) | null;
  /** Nodes stand above those whom they called: what ended at them is no number of theirs. */
  isInverted?: boolean;
}

/** How two selections are compared. */
export interface Comparison {
  /** How long both are, in seconds; `null`: they are compared by their shares of events. */
  seconds: { now: number; before: number } | null;
  /** Whether what is selected is a part of what it is compared with. */
  containsNow: boolean;
}

/** A tree before anything was counted in it. */
export type Structure = Tree & Pick<View, "groups" | "source" | "isInverted">;

/** Sums up a tree whose nodes know what ended there. */
export function viewOf(tree: Structure, own: Float64Array, before: ({ own: Float64Array } & Comparison) | null): View {
  const total = totals(tree, own);
  const events = total[0];
  const base = before && withTotals(tree, before);
  let value = total;
  if (base) {
    value = new Float64Array(tree.count);
    const of = base.seconds ?? { now: events, before: base.events };
    for (let node = 0; node < tree.count; node++) value[node] = share(total[node], of.now) / 2 + share(base.total[node], of.before) / 2;
  }
  return { ...tree, own, total, base, value, events };
}

/**
 * Visits a node and those below it in the order of a walk, each with the value that lies to the left of it within the first one.
 * Where `visit` is false, what is below is left out.
 */
export function walk(view: View, top: number, visit: (node: number, left: number) => boolean) {
  // Where the next node of each depth begins.
  const next = [0];
  const depthOfTop = view.depth[top];
  for (let node = top; node < view.end[top];) {
    const depth = view.depth[node] - depthOfTop;
    const left = next[depth];
    next[depth] = left + view.value[node];
    next[depth + 1] = left;
    node = visit(node, left) ? node + 1 : view.end[node];
  }
}

/** The value to the left of a node within another one, which it is below. */
export function leftOf(view: View, node: number, top: number): number {
  let left = 0;
  for (let at = node; at > top; at = view.parent[at]) {
    for (let sibling = view.parent[at] + 1; sibling < at; sibling = view.end[sibling]) left += view.value[sibling];
  }
  return left;
}

function withTotals(tree: Tree, before: { own: Float64Array } & Comparison) {
  const total = totals(tree, before.own);
  return { ...before, total, events: total[0] };
}

/** `part` of `whole`; 0 of nothing. */
export function share(part: number, whole: number): number {
  return whole > 0 ? part / whole : 0;
}

/** What ended at or below each node. */
export function totals(tree: Tree, own: Float64Array): Float64Array {
  const total = Float64Array.from(own);
  for (let node = tree.count - 1; node > 0; node--) total[tree.parent[node]] += total[node];
  return total;
}

/** The labels on the way from the root to a node. */
export function pathTo(view: Tree, node: number): number[] {
  const path = [];
  for (let at = node; at > 0; at = view.parent[at]) path.push(view.label[at]);
  return path.reverse();
}

/** The node that a path leads to, as far as it goes. */
export function nodeAt(view: Tree, path: number[]): number {
  let node = 0;
  for (const label of path) {
    let child = node + 1;
    while (child < view.end[node] && view.label[child] !== label) child = view.end[child];
    if (child >= view.end[node]) break;
    node = child;
  }
  return node;
}
