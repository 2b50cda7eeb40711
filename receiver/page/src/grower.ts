import { type Tree, type View, viewOf } from "./tree";

/** A tree that is not in the order of a walk yet. Node 0 is the root, which has no label; each node comes after its parent. */
export interface Growth {
  count: number;
  parents: Int32Array;
  labels: Int32Array;
}

const CAPACITY = 1024;

/** A tree that grows path by path. */
export class Grower implements Growth {
  count = 1;
  parents = new Int32Array(CAPACITY);
  labels = new Int32Array(CAPACITY);
  /** Nodes by a hash of their parents and labels, 0: none. Half of it is empty, or more. */
  private slots = new Int32Array(2 * CAPACITY);

  constructor() {
    this.parents[0] = this.labels[0] = -1;
  }

  /** The child of a node that has this label, which is made where there is none. */
  child(parent: number, label: number): number {
    let slot = this.slotOf(parent, label);
    if (this.slots[slot] > 0) return this.slots[slot];
    if (this.count === this.parents.length) {
      this.grow();
      slot = this.slotOf(parent, label);
    }
    const node = this.count++;
    this.parents[node] = parent;
    this.labels[node] = label;
    this.slots[slot] = node;
    return node;
  }

  /** Where a node is among the slots, or would be. */
  private slotOf(parent: number, label: number): number {
    const { slots, parents, labels } = this;
    const mask = slots.length - 1;
    let hash = Math.imul(parent, 0x9e3779b1) ^ Math.imul(label + 0x7f4a7c15, 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
    let slot = (hash ^ (hash >>> 13)) & mask;
    for (let node = slots[slot]; node > 0 && (parents[node] !== parent || labels[node] !== label); node = slots[slot]) {
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  private grow() {
    const { parents, labels } = this;
    this.parents = new Int32Array(parents.length * 2);
    this.labels = new Int32Array(parents.length * 2);
    this.parents.set(parents);
    this.labels.set(labels);
    this.slots = new Int32Array(this.slots.length * 2);
    for (let node = 1; node < this.count; node++) this.slots[this.slotOf(parents[node], labels[node])] = node;
  }
}

/** The children of each node; of parent -1 there are some, too. Those of a node begin at `first[node + 1]`, in their order. */
export function childrenOf(parents: Int32Array, count = parents.length): { first: Int32Array; children: Int32Array } {
  const first = new Int32Array(count + 2);
  for (let node = 0; node < count; node++) first[parents[node] + 2]++;
  for (let node = 0; node <= count; node++) first[node + 1] += first[node];
  const children = new Int32Array(count);
  // Each beginning is moved past what is put there, to where the next one begins; then all are moved back.
  for (let node = 0; node < count; node++) children[first[parents[node] + 1]++] = node;
  first.copyWithin(1, 0);
  first[0] = 0;
  return { first, children };
}

/**
 * A tree in the order of a walk, siblings by the weight of all at and below them; and where each node went. `totals` has the weight
 * of each node alone, to which that of the nodes below is added.
 */
export function flattened({ count, parents, labels }: Growth, totals: Float64Array): { tree: Tree; placeOf: Int32Array } {
  for (let node = count - 1; node > 0; node--) totals[parents[node]] += totals[node];
  const { first, children } = childrenOf(parents, count);
  for (let node = 0; node < count; node++) {
    const [from, to] = [first[node + 1], first[node + 2]];
    if (to - from > 1) children.subarray(from, to).sort((a, b) => totals[b] - totals[a] || a - b);
  }
  const tree: Tree = {
    count,
    label: new Int32Array(count),
    parent: new Int32Array(count),
    depth: new Int32Array(count),
    end: new Int32Array(count),
  };
  const placeOf = new Int32Array(count);
  const open = [0];
  for (let place = 0; open.length > 0; place++) {
    const node = open.pop()!;
    placeOf[node] = place;
    tree.label[place] = labels[node];
    tree.parent[place] = node === 0 ? -1 : placeOf[parents[node]];
    tree.depth[place] = node === 0 ? 0 : tree.depth[tree.parent[place]] + 1;
    for (let at = first[node + 2] - 1; at >= first[node + 1]; at--) open.push(children[at]);
  }
  for (let place = count - 1; place >= 0; place--) {
    tree.end[place] = Math.max(tree.end[place], place + 1);
    const above = tree.parent[place];
    if (above >= 0) tree.end[above] = Math.max(tree.end[above], tree.end[place]);
  }
  return { tree, placeOf };
}

type Counts = { own: Float64Array; total: Float64Array };

/** A view of what was grown, whose shares are of the events in it. `fill` gives each node what is its own. */
export function grownView(view: View, grower: Grower, fill: (of: Counts, own: Float64Array) => void): View {
  const grown = (of: Counts) => {
    const own = new Float64Array(grower.count);
    fill(of, own);
    return own;
  };
  const own = grown(view);
  const { tree, placeOf } = flattened(grower, Float64Array.from(own));
  const place = (values: Float64Array) => {
    const placed = new Float64Array(tree.count);
    values.forEach((value, node) => (placed[placeOf[node]] = value));
    return placed;
  };
  const before = view.base && { ...view.base, own: place(grown(view.base)) };
  return viewOf({ ...tree, groups: view.groups, source: null }, place(own), before);
}
