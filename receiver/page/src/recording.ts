import type { Column, Document, Outcome } from "./document";
import { flattened } from "./grower";
import type { Range } from "./select";
import type { Tree } from "./tree";
import { bytes, seconds, whole } from "./words";

/** The state of a thread that is on a CPU. */
export const RUNNING = "running";

/** A recording, with its stacks as one tree of functions. */
export class Recording {
  readonly title: string;
  readonly measure: string;
  readonly unit: string;
  readonly rateHz: number;
  readonly periodNs: number;
  readonly start: Date;
  readonly durationMs: number;
  readonly sliceMs: number;
  readonly slices: number;
  /** Of these, the first ones whose samples are all here: the last slice with a sample of a live profile may get more. */
  readonly completeSlices: number;
  /** The number of its first slice, where it is a window on what is profiled; slices count from there. */
  readonly firstSlice: number;
  readonly live: Document["live"];
  readonly kinds: Document["kinds"];
  readonly outcomes: Outcome[];
  readonly parts: Document["parts"];

  readonly hasFullNames: boolean;
  readonly views: Document["views"];
  readonly grouping: Document["grouping"];
  /** `short` tells a function apart from the others: no two have the same. */
  readonly functions: { name: string[]; short: string[]; binary: string[]; path: string[]; kind: Uint8Array; isStandard: Uint8Array };
  readonly threads: { process: string[]; pid: Column; name: string[]; tid: Column; container: string[] };
  readonly spans: Document["spans"];
  /** What threads do or wait for: a state, and the kind of system call in it, empty where there is none. */
  readonly states: { state: string[]; cause: string[] };
  /** The tree of functions of all samples. */
  readonly tree: Tree;
  /** By node of `tree`: whether all of its calls are inlined into the caller's code. */
  readonly isInlined: Uint8Array;
  /**
   * In the order of slices. `node` is one of `tree`, `place` one of `places`; `span` and `state` count from 1, 0: none. Events
   * are spread evenly from slice `first` to `slice`: see `firstSliceOf`.
   */
  readonly samples: {
    count: number;
    first: Int32Array;
    slice: Column;
    thread: Column;
    span: Column;
    state: Column;
    node: Int32Array;
    /** The node with its lines, as the document numbers them. */
    leaf: Column;
    events: Column;
  };
  private readonly nodes: Document["nodes"];
  private unpacked: { parent: Int32Array; place: Int32Array } | null = null;
  /** The lines of functions. `path` is there for those in another file than the rest of their function. */
  readonly places: { function: Column; line: Column; isInlined: Uint8Array; path: Map<number, string> };
  /** Parts of source files that the document holds. */
  readonly sources: Document["sources"];
  readonly assembly: Document["assembly"];
  /** Whether whoever serves the page can be asked for more of both. */
  readonly servesCode: boolean;

  constructor(document: Document) {
    const textsOf = (column: Column) => Array.from(column, (index) => document.strings[index] ?? "");
    this.title = document.title;
    this.measure = document.measure;
    this.unit = document.unit;
    this.rateHz = document.rate_hz;
    this.periodNs = document.period_ns;
    this.start = new Date(document.start_unix_ms);
    this.live = document.live;
    this.firstSlice = document.live?.first_slice ?? 0;
    this.durationMs = document.duration_ms - this.firstSlice * document.slice_ms;
    this.sliceMs = document.slice_ms;
    this.kinds = document.kinds;
    this.outcomes = document.outcomes;
    this.parts = document.parts;
    this.spans = document.spans;
    this.hasFullNames = document.full_names;
    this.views = document.views;
    this.grouping = document.grouping;
    const { functions, threads, nodes, places, samples } = document;
    this.functions = {
      name: textsOf(functions.name),
      short: textsOf(functions.short),
      binary: textsOf(functions.binary),
      path: textsOf(functions.path),
      kind: Uint8Array.from(functions.kind),
      isStandard: new Uint8Array(functions.name.length),
    };
    for (const label of functions.standard) this.functions.isStandard[label] = 1;
    this.threads = {
      process: textsOf(threads.process),
      pid: threads.pid,
      name: textsOf(threads.name),
      tid: threads.tid,
      container: textsOf(threads.container),
    };
    this.states = { state: textsOf(document.states.state), cause: textsOf(document.states.cause) };
    let lastSlice = -this.firstSlice;
    for (const slice of samples.slice) lastSlice = Math.max(lastSlice, slice - this.firstSlice);
    const lasting = this.sliceMs > 0 ? Math.ceil(this.durationMs / this.sliceMs) : 0;
    this.slices = Math.max(lastSlice + 1, lasting, ...this.parts.map((part) => part.to));
    this.completeSlices = document.live ? Math.max(0, lastSlice) : this.slices;

    this.sources = document.sources;
    this.assembly = document.assembly;
    this.servesCode = document.serves_code;
    const paths = textsOf(places.path);
    this.places = {
      function: places.function,
      line: places.line,
      isInlined: new Uint8Array(places.line.length),
      path: new Map(Array.from(places.elsewhere, (place, at) => [place, paths[at]])),
    };
    for (const place of places.inlined) this.places.isInlined[place] = 1;

    this.nodes = nodes;
    const nodeCount = nodes.place.count;
    const [nextBefore, nextAgain, nextPlace] = [nodes.parent_before, nodes.again_before, nodes.place].map((column) => column.reader());
    // The node of the tree of each; these are numbered as they come, until their order is that of a walk.
    const node = new Int32Array(nodeCount);
    const growth = { count: 1, parents: new Int32Array(nodeCount + 1), labels: new Int32Array(nodeCount + 1) };
    growth.parents[0] = growth.labels[0] = -1;
    const isInlined = new Uint8Array(nodeCount + 1).fill(1);
    for (let at = 0; at < nodeCount; at++) {
      const before = nextBefore();
      const again = nextAgain();
      node[at] = again === 0 ? growth.count++ : growth.count - again;
      growth.parents[node[at]] = before === 0 ? 0 : node[at - before];
      const place = nextPlace();
      growth.labels[node[at]] = places.function[place];
      isInlined[node[at]] &= this.places.isInlined[place];
    }
    const weight = new Float64Array(growth.count);
    for (let row = 0; row < samples.node.length; row++) weight[node[samples.node[row]]] += samples.count[row];
    const { tree, placeOf } = flattened(growth, weight);
    this.tree = tree;
    this.isInlined = new Uint8Array(tree.count);
    placeOf.forEach((place, node) => (this.isInlined[place] = isInlined[node]));
    const { firstSlice } = this;
    this.samples = {
      count: samples.node.length,
      first: Int32Array.from(samples.slice, (slice, row) => this.firstSliceOf(slice - firstSlice, samples.state[row], samples.count[row])),
      slice: firstSlice > 0 ? samples.slice.map((slice) => slice - firstSlice) : samples.slice,
      thread: samples.thread,
      span: samples.span,
      state: samples.state,
      node: Int32Array.from(samples.node, (leaf) => placeOf[node[leaf]]),
      leaf: samples.node,
      events: samples.count,
    };
  }

  /**
   * Nodes as the document has them, which tell the lines of a function apart: each is as deep as its node of the tree. They are
   * unpacked when they are asked for: the flame graph does without.
   */
  get lines(): { parent: Int32Array; place: Int32Array } {
    if (!this.unpacked) {
      const { parent_before, place } = this.nodes;
      const [nextBefore, nextPlace] = [parent_before.reader(), place.reader()];
      const ofEach = (value: (at: number) => number) => {
        const values = new Int32Array(place.count);
        for (let at = 0; at < place.count; at++) values[at] = value(at);
        return values;
      };
      const parentOf = (at: number) => {
        const before = nextBefore();
        return before === 0 ? -1 : at - before;
      };
      this.unpacked = { parent: ofEach(parentOf), place: ofEach(nextPlace) };
    }
    return this.unpacked;
  }

  /**
   * The first slice of what ended in `slice`. A wait is an event at its end, with its time as its value: one that is longer than
   * a slice began before it. What runs is sampled while it does.
   */
  private firstSliceOf(slice: number, state: number, events: number): number {
    const isWait = this.isTime && this.sliceMs > 0 && state > 0 && this.states.state[state - 1] !== RUNNING;
    // One that took no time at all is in a slice, too.
    return isWait ? Math.max(0, slice + 1 - Math.max(1, Math.ceil(events / (this.sliceMs * 1e6)))) : slice;
  }

  /** The share of a row of samples that is in a range of slices. */
  within(row: number, { from, to }: Range): number {
    const [first, after] = [this.samples.first[row], this.samples.slice[row] + 1];
    return Math.max(0, Math.min(to, after) - Math.max(from, first)) / (after - first);
  }

  /** Whether times are told apart by what threads did meanwhile. */
  get isOfStates(): boolean {
    return this.isTime && this.states.state.length > 0;
  }

  /** The time that events stand for, in words; none where nobody says how long one is. */
  time(events: number): string {
    return this.periodNs > 0 ? seconds((events * this.periodNs) / 1e9) : "";
  }

  /** Whether values are nanoseconds, and not numbers of samples. */
  get isTime(): boolean {
    return this.unit === "nanoseconds";
  }

  /** Whether events are samples of the CPUs' time: each stands for the time between two. */
  get isOfCpus(): boolean {
    return this.periodNs > 0 && !this.isTime;
  }

  /** Whether values are in a unit of their own, and not numbers or nanoseconds. */
  get isOfUnit(): boolean {
    return !this.isTime && this.unit !== "count";
  }

  /** Whether any call is inlined. */
  get hasInlined(): boolean {
    return this.places.isInlined.includes(1);
  }

  /** What is counted, in words: samples, a unit, or whatever a counter counts. */
  get counted(): string {
    return this.isOfCpus || this.isTime ? "samples" : this.isOfUnit ? this.unit : this.measure;
  }

  /** What the recording is of, in words. */
  get subject(): string {
    return this.isOfCpus ? "CPU" : this.isTime ? `${this.measure} time` : this.measure;
  }

  /** A value in words: so many samples, counts or bytes, or a time. */
  amount(events: number): string {
    if (this.isTime) return this.time(events);
    return this.unit === "bytes" ? bytes(events) : `${whole(events)} ${this.counted}`;
  }

  /** What to call a thread beside others. */
  threadName(thread: number): string {
    const { process, name, tid, pid } = this.threads;
    const number = tid[thread] || pid[thread];
    return `${name[thread] || process[thread] || "[unnamed]"}${number ? ` ${number}` : ""}`;
  }

  /** What to call the container of a thread, or its unit. */
  containerName(thread: number): string {
    return this.threads.container[thread] || "outside any container";
  }

  /** What to call the process of a thread. */
  processName(thread: number): string {
    const { process, pid } = this.threads;
    return `${process[thread] || "[unnamed]"}${pid[thread] ? ` ${pid[thread]}` : ""}`;
  }
}
