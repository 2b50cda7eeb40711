import type { Recording } from "./recording";
import { type Comparison, type Structure, type Tree, type View, viewOf } from "./tree";

/** A stretch of time: slices from `from` on, before `to`. */
export interface Range {
  from: number;
  to: number;
}

/** What boxes at the root are made of. */
export type Grouping = "none" | "process" | "thread" | "container" | "trace" | "span";

/** Which events are looked at. */
export interface Selection {
  /** `null`: all of the time. */
  range: Range | null;
  /** The range to compare with, or the rest of the time; `null`: none. */
  base: Range | "rest" | null;
  /** Whether events a second are compared, and not shares of events. */
  isPerSecond: boolean;
  /** `null`: all threads. */
  threads: ReadonlySet<number> | null;
  /** Of states, counted from 1; `null`: all of them. */
  states: ReadonlySet<number> | null;
  grouping: Grouping;
}

const NO_SPAN = "outside any span";

/** For each thread or span the number of its group, and the groups' names. */
function groupsOf(recording: Recording, grouping: Grouping) {
  const names: string[] = [];
  const numbers = new Map<string, number>();
  const number = (name: string) => {
    if (!numbers.has(name)) numbers.set(name, names.push(name) - 1);
    return numbers.get(name)!;
  };
  const { threads, spans } = recording;
  const nameOfThread = {
    process: (thread: number) => recording.processName(thread),
    thread: (thread: number) => recording.threadName(thread),
    container: (thread: number) => recording.containerName(thread),
  }[grouping as string];
  if (nameOfThread) {
    return { names, ofThread: Int32Array.from(threads.tid, (_, thread) => number(nameOfThread(thread))), ofSpan: null };
  }
  const of = grouping === "trace" ? spans.trace : spans.span;
  const ofSpan = Int32Array.from([NO_SPAN, ...of.map((id) => `${grouping} ${id}`)], number);
  return { names, ofThread: null, ofSpan };
}

/** The names of groups, whose labels come after the functions'. */
export function groupNames(recording: Recording, grouping: Grouping): string[] {
  return grouping === "none" ? [] : groupsOf(recording, grouping).names;
}

/** Adds up what was selected. */
export function select(recording: Recording, selection: Selection): View {
  const { tree, samples } = recording;
  const { range, base, grouping } = selection;
  const isGrouped = grouping !== "none";
  const groups = isGrouped ? groupsOf(recording, grouping) : { names: [""], ofThread: null, ofSpan: null };
  const isWanted = wanted(recording, selection);
  const groupOfRow = (row: number) =>
    groups.ofThread ? groups.ofThread[samples.thread[row]] : groups.ofSpan ? groups.ofSpan[samples.span[row]] : 0;

  // Of each row, the part that was selected, and the part that this is compared with.
  const nowOf = (row: number) => (range ? recording.within(row, range) : 1);
  const beforeOf = (row: number) => (base === "rest" ? 1 - nowOf(row) : base ? recording.within(row, base) : 0);
  // The rows of each group, those of the busiest group first.
  const rowsOf: number[][] = groups.names.map(() => []);
  const eventsOf = new Float64Array(groups.names.length);
  for (let row = 0; row < samples.count; row++) {
    if (!isWanted(row)) continue;
    if (nowOf(row) === 0 && beforeOf(row) === 0) continue;
    const group = groupOfRow(row);
    rowsOf[group].push(row);
    eventsOf[group] += samples.events[row];
  }
  const order = [...rowsOf.keys()].filter((group) => rowsOf[group].length > 0 || !isGrouped);
  order.sort((a, b) => eventsOf[b] - eventsOf[a]);

  const touched = order.map((group) => touch(recording, rowsOf[group]));
  const isWhole = !isGrouped && touched[0].length === tree.count;
  const maker = isWhole ? null : new Maker(tree, touched.reduce((sum, nodes) => sum + nodes.length, 0), isGrouped);
  const count = maker?.count ?? tree.count;
  const own = new Float64Array(count);
  const baseOwn = base && new Float64Array(count);
  order.forEach((group, number) => {
    const placed = maker?.add(touched[number], recording.functions.name.length + group);
    for (const row of rowsOf[group]) {
      const node = samples.node[row];
      const [at, events] = [placed ? placed[node] : node, samples.events[row]];
      own[at] += events * nowOf(row);
      if (baseOwn) baseOwn[at] += events * beforeOf(row);
    }
  });
  const structure = maker ? maker.finish(isGrouped ? groups.names : []) : { ...tree, groups: [], source: (node: number) => node };
  return viewOf(structure, own, baseOwn && { own: baseOwn, ...comparison(recording, selection) });
}

function comparison({ slices, sliceMs }: Recording, { range, base, isPerSecond }: Selection): Comparison {
  const now = range ?? { from: 0, to: slices };
  const length = ({ from, to }: Range) => to - from;
  const before = base === "rest" || !base ? slices - length(now) : length(base);
  const toSeconds = sliceMs / 1e3;
  return {
    seconds: isPerSecond && sliceMs > 0 ? { now: length(now) * toSeconds, before: before * toSeconds } : null,
    containsNow: base !== "rest" && base !== null && base.from <= now.from && now.to <= base.to,
  };
}

/** Makes the tree of a view of nodes of the recording's tree: once, or below a node for each group. */
class Maker {
  readonly count: number;
  private readonly label: Int32Array;
  private readonly parent: Int32Array;
  private readonly depth: Int32Array;
  private readonly source: Int32Array;
  /** Where nodes of the recording's tree are that were added last. */
  private readonly placed: Int32Array;
  private next: number;

  /** For so many nodes of a tree, its root included wherever it is. */
  constructor(private readonly tree: Tree, nodeCount: number, private readonly isGrouped: boolean) {
    this.count = nodeCount + (isGrouped ? 1 : 0);
    [this.label, this.parent, this.depth] = [new Int32Array(this.count), new Int32Array(this.count), new Int32Array(this.count)];
    this.source = new Int32Array(this.count).fill(-1);
    this.placed = new Int32Array(tree.count);
    [this.label[0], this.parent[0]] = [-1, -1];
    this.next = isGrouped ? 1 : 0;
  }

  /**
   * Adds nodes in their order. The first of them is the root of the recording's tree, which stands for the group with this
   * label, or for everything. Returns where they are, until others are added.
   */
  add(nodes: Int32Array, label: number): Int32Array {
    const { tree, placed } = this;
    const below = this.isGrouped ? 1 : 0;
    for (const node of nodes) {
      const at = (placed[node] = this.next++);
      this.depth[at] = tree.depth[node] + below;
      if (node > 0) {
        this.label[at] = tree.label[node];
        this.parent[at] = placed[tree.parent[node]];
        this.source[at] = node;
      } else if (this.isGrouped) {
        this.label[at] = label;
      }
    }
    return placed;
  }

  finish(groups: string[]): Structure {
    const { count, label, parent, depth, source } = this;
    const end = new Int32Array(count);
    end[0] = count;
    for (let node = count - 1; node > 0; node--) {
      end[node] = Math.max(end[node], node + 1);
      end[parent[node]] = Math.max(end[parent[node]], end[node]);
    }
    return { count, label, parent, depth, end, groups, source: (node) => source[node] };
  }
}

/** Whether a row is of a thread and a state that were selected. */
export function wanted(recording: Recording, { threads, states }: Pick<Selection, "threads" | "states">): (row: number) => boolean {
  const { samples } = recording;
  const has = (set: ReadonlySet<number> | null, count: number) =>
    Uint8Array.from({ length: count }, (_, one) => (!set || set.has(one) ? 1 : 0));
  const ofThread = has(threads, recording.threads.tid.length);
  const ofState = has(states, recording.states.state.length + 1);
  return (row) => ofThread[samples.thread[row]] === 1 && ofState[samples.state[row]] === 1;
}

/** The nodes that rows lead to and those above, in the order of the tree. */
function touch({ tree, samples }: Recording, rows: number[]): Int32Array {
  const isTouched = new Uint8Array(tree.count);
  let count = 1;
  isTouched[0] = 1;
  for (const row of rows) {
    for (let node = samples.node[row]; isTouched[node] === 0; node = tree.parent[node]) {
      isTouched[node] = 1;
      count++;
    }
  }
  const touched = new Int32Array(count);
  for (let node = 0, at = 0; node < tree.count; node++) if (isTouched[node] === 1) touched[at++] = node;
  return touched;
}

/** Lines of one node of the recording's tree within the selection, the busiest first: events by line. */
export function linesOf(recording: Recording, selection: Selection, node: number): [line: number, events: number][] {
  const { lines, places, samples, tree } = recording;
  const of = new Map<number, number>();
  const { range } = selection;
  const isWanted = wanted(recording, selection);
  // The line of the ancestor at `node`, found once for each leaf.
  const found = new Map<number, number>();
  for (let row = 0; row < samples.count; row++) {
    if (samples.node[row] < node || samples.node[row] >= tree.end[node]) continue;
    const part = range ? recording.within(row, range) : 1;
    if (part === 0 || !isWanted(row)) continue;
    const leaf = samples.leaf[row];
    let line = found.get(leaf);
    if (line === undefined) {
      let at = leaf;
      for (let depth = tree.depth[samples.node[row]]; depth > tree.depth[node]; depth--) at = lines.parent[at];
      line = places.line[lines.place[at]];
      found.set(leaf, line);
    }
    if (line > 0) of.set(line, (of.get(line) ?? 0) + samples.events[row] * part);
  }
  return [...of].sort((a, b) => b[1] - a[1]);
}
