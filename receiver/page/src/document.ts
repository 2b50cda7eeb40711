/** What the page shows, as `receiver/render/src/page.rs` writes it: tables by columns, texts as positions in `strings`. */
export interface Document {
  title: string;
  measure: string;
  rate_hz: number;
  period_ns: number;
  start_unix_ms: number;
  duration_ms: number;
  /** How long a slice of time is; 0 where no times are known. */
  slice_ms: number;
  kinds: { label: string; colour: [number, number, number] }[];
  strings: string[];
  functions: { name: number[]; binary: number[]; path: number[]; kind: number[] };
  places: { function: number[]; line: number[] };
  /** `parent_before`: how many nodes before this one its caller is; 0: it has none. */
  nodes: { parent_before: number[]; place: number[] };
  threads: { process: number[]; pid: number[]; name: number[]; tid: number[] };
  spans: { trace: string[]; span: string[] };
  /** In the order of slices; `span` is one more than the index of the span, 0: none. */
  samples: { slice: number[]; thread: number[]; span: number[]; node: number[]; count: number[] };
  outcomes: Outcome[];
  /** The recordings that this one was put together of, as ranges of slices. */
  parts: { name: string; from: number; to: number }[];
}

/** How many interrupts ended in one way. */
export interface Outcome {
  name: string;
  count: number;
  severity: "complete" | "aside" | "cut" | "lost";
  help: string;
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
