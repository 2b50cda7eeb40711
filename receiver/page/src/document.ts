import { Packed } from "./packed";

/** A column of numbers: of whole ones, each exact. */
export type Column = Int32Array | Float64Array;

/** What the page shows, as `receiver/render/src/document.rs` writes it: tables by columns, texts as positions in `strings`. */
export interface Document {
  title: string;
  /** What the time of events is of, as it is displayed. */
  measure: string;
  /** Of the values of samples: "count", "nanoseconds", "bytes" or another one. */
  unit: string;
  rate_hz: number;
  period_ns: number;
  start_unix_ms: number;
  duration_ms: number;
  /** How long a slice of time is; 0 where no times are known. */
  slice_ms: number;
  kinds: { label: string; colour: [number, number, number] }[];
  /** Whether names are shown in full at first. */
  full_names: boolean;
  /** What can be shown, and which of it this is; no names: only this. */
  views: { names: string[]; shown: number };
  /** How boxes are grouped at first. */
  grouping: "none" | "thread";
  strings: string[];
  /** `short` is what tells the name apart from all others; `standard` are the functions of standard libraries. */
  functions: { name: Column; short: Column; binary: Column; path: Column; kind: Column; standard: Column };
  /** Functions that the page has already, and what their short names are now. */
  renamed: { function: Column; short: Column };
  /** `inlined` are the places of calls that are inlined; `elsewhere` those in another file than the rest of their function, `path`. */
  places: { function: Column; line: Column; inlined: Column; elsewhere: Column; path: Column };
  /**
   * Functions as called by others, told apart by their lines. `parent_before`: how many nodes before this one its caller is, 0: it has
   * none. `again_before`: of the nodes that differ in more than lines, how many before the last one this is one of; 0: of none.
   * There are millions of them: they stay packed.
   */
  nodes: { parent_before: Packed; again_before: Packed; place: Packed };
  /** `container` is what the container or the unit is called, 0 where there is none. */
  threads: { process: Column; pid: Column; name: Column; tid: Column; container: Column };
  spans: { trace: string[]; span: string[] };
  /** What threads do or wait for; `cause` is 0 where there is none. */
  states: { state: Column; cause: Column };
  /** In the order of slices, but for what came late to a page that follows; `span` and `state` are one more than an index, 0: none. */
  samples: { slice: Column; thread: Column; span: Column; state: Column; node: Column; count: Column };
  outcomes: Outcome[];
  /** The recordings that this one was put together of, as ranges of slices. */
  parts: { name: string; from: number; to: number }[];
  /** Parts of source files. */
  sources: SourceFile[];
  assembly: Assembly[];
  /** Whether whoever serves the page can be asked for more of both. */
  serves_code: boolean;
  /** There for a page that follows what is profiled: then tables are only what came since the last answer. */
  live?: {
    /** What to ask for next. */
    next: string;
    /** Whether it is everything, not what is new. */
    is_whole: boolean;
    /** What is before this slice is held no longer. */
    first_slice: number;
    /** Events that were held and are no longer. */
    forgotten: number;
    has_ended: boolean;
  };
}

/** What is known of the text of a source file: runs of lines, in their order. */
export interface SourceFile {
  path: string;
  parts: { line: number; text: string[] }[];
}

/** What a profiler answers when it is asked for the source of a function. */
export interface SourceAnswer {
  name: string;
  binary: string;
  sources: SourceFile[];
}

/** The instructions of a function, and what each costs. */
export interface Assembly {
  /** The function, as `functions` has it. */
  name: string;
  binary: string;
  /** The file with its code. */
  path: string;
  build_id: string;
  /** The functions of the file that its instructions are in: one, or those that it was inlined into. */
  blocks: { symbol: string; start: number; end: number }[];
  /** The lines' files. */
  files: string[];
  /** In the order of addresses. `file` counts from 1, 0: unknown. */
  instructions: { address: number[]; text: string[]; line: number[]; file: number[] };
  /** How stacks are unwound from an address on. */
  unwinding: { address: number[]; method: string[] };
  /** Events by what they have in common: `own` of those that ended at the instruction, `total` with those in its callees. */
  costs: { slice: number[]; thread: number[]; state: number[]; instruction: number[]; own: number[]; total: number[] };
}

/** How many interrupts ended in one way. */
export interface Outcome {
  name: string;
  count: number;
  severity: "complete" | "aside" | "cut" | "lost";
  help: string;
}

const TABLES = ["functions", "places", "threads", "states", "samples"] as const;

/** Puts what is new at the end of what is there. */
export function append(document: Document, more: Document): Document {
  for (const text of more.strings) document.strings.push(text);
  for (const list of ["trace", "span"] as const) for (const id of more.spans[list]) document.spans[list].push(id);
  for (const table of TABLES) {
    const to: Record<string, Column> = document[table];
    const from: Record<string, Column> = more[table];
    for (const column in to) to[column] = joined(to[column], from[column]);
  }
  const nodes = {
    parent_before: document.nodes.parent_before.with(more.nodes.parent_before),
    again_before: document.nodes.again_before.with(more.nodes.again_before),
    place: document.nodes.place.with(more.nodes.place),
  };
  more.renamed.function.forEach((number, at) => (document.functions.short[number] = more.renamed.short[at]));
  const { strings, functions, places, threads, spans, states, samples } = document;
  return { ...more, strings, functions, places, nodes, threads, spans, states, samples };
}

/** A new column with the values of both. */
function joined(first: Column, second: Column): Column {
  const isWhole = first instanceof Int32Array && second instanceof Int32Array;
  const values = isWhole ? new Int32Array(first.length + second.length) : new Float64Array(first.length + second.length);
  values.set(first);
  values.set(second, first.length);
  return values;
}

/** Lets go of samples before a slice. */
export function forget(document: Document, before: number) {
  const columns: Record<string, Column> = document.samples;
  const { slice } = document.samples;
  if (!slice.some((one) => one < before)) return;
  const isKept = (_: number, row: number) => slice[row] >= before;
  for (const column in columns) columns[column] = columns[column].filter(isKept);
}

/** How much base64 is decoded at a time: whole groups of four letters. */
const CHUNK_LETTERS = 1 << 18;

/** Reads one of the documents that an element holds: each compressed by gzip, in base64, and separated by commas. */
export async function read(element: HTMLTemplateElement, view: number): Promise<Document> {
  const documents = (element.content.textContent ?? "").split(",");
  const text = documents[view] ?? documents[0];
  let at = 0;
  const compressed = new ReadableStream<BufferSource>({
    pull(stream) {
      const letters = atob(text.slice(at, at + CHUNK_LETTERS));
      const bytes = new Uint8Array(letters.length);
      for (let byte = 0; byte < bytes.length; byte++) bytes[byte] = letters.charCodeAt(byte);
      stream.enqueue(bytes);
      at += CHUNK_LETTERS;
      if (at >= text.length) stream.close();
    },
  });
  return decode(await new Response(compressed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());
}

/** Takes a document apart: the length of its JSON, the JSON, and the columns that it lists, in LEB128. */
export function decode(buffer: ArrayBuffer): Document {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let rest = new Uint8Array(buffer, 4 + length);
  for (const { table, name, count } of head.columns) {
    const packed = Packed.first(rest, count);
    head[table] ??= {};
    head[table][name] = table === "nodes" ? packed : column(packed);
    rest = rest.subarray(packed.bytes.length);
  }
  return head;
}

function column(packed: Packed): Column {
  const next = packed.reader();
  let values: Column = new Int32Array(packed.count);
  for (let row = 0; row < packed.count; row++) {
    const value = next();
    if (value > 0x7fffffff && values instanceof Int32Array) values = Float64Array.from(values);
    values[row] = value;
  }
  return values;
}
