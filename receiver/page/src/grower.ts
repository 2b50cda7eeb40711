import { type Tree, type View, viewOf } from "./tree";

/** A map from pairs of numbers that are not negative to such numbers, for millions of them. */
class PairMap {
  private keys = new Int32Array(2 * 1024).fill(-1);
  private values = new Int32Array(1024);
  private size = 0;

  /** The value of a pair; where it has none, `value` becomes it. */
  getOrSet(first: number, second: number, value: number): number {
    if (this.size * 2 > this.values.length) this.grow();
    const slot = this.slotOf(first, second);
    if (this.keys[2 * slot] >= 0) return this.values[slot];
    this.keys[2 * slot] = first;
    this.keys[2 * slot + 1] = second;
    this.values[slot] = value;
    this.size++;
    return value;
  }

  private slotOf(first: number, second: number): number {
    const mask = this.values.length - 1;
    let hash = Math.imul(first, 0x9e3779b1) ^ Math.imul(second + 0x7f4a7c15, 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
    let slot = (hash ^ (hash >>> 13)) & mask;
    while (this.keys[2 * slot] >= 0 && (this.keys[2 * slot] !== first || this.keys[2 * slot + 1] !== second)) {
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  private grow() {
    const { keys, values } = this;
    this.keys = new Int32Array(keys.length * 2).fill(-1);
    this.values = new Int32Array(values.length * 2);
    for (let old = 0; old < values.length; old++) {
      if (keys[2 * old] < 0) continue;
      const slot = this.slotOf(keys[2 * old], keys[2 * old + 1]);
      this.keys[2 * slot] = keys[2 * old];
      this.keys[2 * slot + 1] = keys[2 * old + 1];
      this.values[slot] = values[old];
    }
  }
}

/** A tree that grows path by path. Node 0 is the root, which has no label; each node comes after its parent. */
export class Grower {
  readonly parents: number[] = [-1];
  readonly labels: number[] = [-1];
  private readonly known = new PairMap();

  /** The child of a node that has this label, which is made where there is none. */
  child(parent: number, label: number): number {
    const node = this.known.getOrSet(parent, label, this.parents.length);
    if (node === this.parents.length) {
      this.parents.push(parent);
      this.labels.push(label);
    }
    return node;
  }

  /** The tree in the order of a walk, siblings by `weight` of all at and below them; and where each node went. */
  flatten(weight: Float64Array): { tree: Tree; placeOf: Int32Array } {
    const count = this.parents.length;
    const totals = Float64Array.from(weight);
    const firstChild = new Int32Array(count + 1);
    for (let node = count - 1; node > 0; node--) {
      totals[this.parents[node]] += totals[node];
      firstChild[this.parents[node] + 1]++;
    }
    for (let node = 0; node < count; node++) firstChild[node + 1] += firstChild[node];
    const children = new Int32Array(count);
    const filled = firstChild.slice();
    for (let node = 1; node < count; node++) children[filled[this.parents[node]]++] = node;
    for (let node = 0; node < count; node++) {
      if (firstChild[node + 1] - firstChild[node] > 1) {
        children.subarray(firstChild[node], firstChild[node + 1]).sort((a, b) => totals[b] - totals[a] || a - b);
      }
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
      tree.label[place] = this.labels[node];
      tree.parent[place] = node === 0 ? -1 : placeOf[this.parents[node]];
      tree.depth[place] = node === 0 ? 0 : tree.depth[tree.parent[place]] + 1;
      for (let at = firstChild[node + 1] - 1; at >= firstChild[node]; at--) open.push(children[at]);
    }
    for (let place = count - 1; place >= 0; place--) {
      tree.end[place] = Math.max(tree.end[place], place + 1);
      const above = tree.parent[place];
      if (above >= 0) tree.end[above] = Math.max(tree.end[above], tree.end[place]);
    }
    return { tree, placeOf };
  }
}

type Counts = { own: Float64Array; total: Float64Array };

/** A view of what was grown, whose shares are of the events in it. `fill` gives each node what is its own. */
export function grownView(view: View, grower: Grower, fill: (of: Counts, own: Float64Array) => void): View {
  const grown = (of: Counts) => {
    const own = new Float64Array(grower.parents.length);
    fill(of, own);
    return own;
  };
  const [own, baseOwn] = [grown(view), view.base && grown(view.base)];
  const { tree, placeOf } = grower.flatten(own);
  const place = (values: Float64Array) => {
    const placed = new Float64Array(tree.count);
    values.forEach((value, node) => (placed[placeOf[node]] = value));
    return placed;
  };
  return viewOf({ ...tree, groups: view.groups, source: null }, place(own), baseOwn && place(baseOwn));
}
