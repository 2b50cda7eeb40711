/** What the page shows, as `receiver/render/src/page.rs` writes it: tables by columns, texts as positions in `strings`. */
export interface Document {
  title: string;
  /** What the time of events is of, as it is displayed. */
  measure: string;
  rate_hz: number;
  period_ns: number;
  start_unix_ms: number;
  duration_ms: number;
  /** How long a slice of time is; 0 where no times are known. */
  slice_ms: number;
  kinds: { label: string; colour: [number, number, number] }[];
  /** Whether names are shown in full at first. */
  full_names: boolean;
  /** How boxes are grouped at first. */
  grouping: "none" | "thread";
  strings: string[];
  /** `short` is what tells the name apart from all others. */
  functions: { name: number[]; short: number[]; binary: number[]; path: number[]; kind: number[] };
  /** Functions that the page has already, and what their short names are now. */
  renamed: { function: number[]; short: number[] };
  /** `inlined` are the places of calls that are inlined; `elsewhere` those in another file than the rest of their function, `path`. */
  places: { function: number[]; line: number[]; inlined: number[]; elsewhere: number[]; path: number[] };
  /** `parent_before`: how many nodes before this one its caller is; 0: it has none. */
  nodes: { parent_before: number[]; place: number[] };
  /** `container` is what the container or the unit is called, 0 where there is none. */
  threads: { process: number[]; pid: number[]; name: number[]; tid: number[]; container: number[] };
  spans: { trace: string[]; span: string[] };
  /** What threads do or wait for; `cause` is 0 where there is none. */
  states: { state: number[]; cause: number[] };
  /** In the order of slices, but for what came late to a page that follows; `span` and `state` are one more than an index, 0: none. */
  samples: { slice: number[]; thread: number[]; span: number[]; state: number[]; node: number[]; count: number[] };
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

const TABLES = ["functions", "places", "nodes", "threads", "spans", "states", "samples"] as const;

/** Puts what is new at the end of what is there. */
export function append(document: Document, more: Document): Document {
  for (const text of more.strings) document.strings.push(text);
  for (const table of TABLES) {
    const to: Record<string, unknown[]> = document[table];
    const from: Record<string, unknown[]> = more[table];
    for (const column in to) for (const value of from[column]) to[column].push(value);
  }
  more.renamed.function.forEach((number, at) => (document.functions.short[number] = more.renamed.short[at]));
  const { strings, functions, places, nodes, threads, spans, states, samples } = document;
  return { ...more, strings, functions, places, nodes, threads, spans, states, samples };
}

/** Lets go of samples before a slice. */
export function forget(document: Document, before: number) {
  const { slice } = document.samples;
  let kept = 0;
  const columns: number[][] = Object.values(document.samples);
  for (let row = 0; row < slice.length; row++) {
    if (slice[row] < before) continue;
    // `slice` is one of the columns: what is read of it is at or after what is written.
    for (const column of columns) column[kept] = column[row];
    kept++;
  }
  for (const column of columns) column.length = kept;
}

/** Reads what an element holds: JSON, compressed by gzip, in base64. */
export async function read(element: HTMLTemplateElement): Promise<Document> {
  const text = atob(element.content.textContent ?? "");
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  return inflate(new Blob([bytes]).stream());
}

/** The document in a stream of gzip. */
export async function inflate(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<Document> {
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).json();
}
