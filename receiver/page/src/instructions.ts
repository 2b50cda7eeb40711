import type { Assembly } from "./document";
import type { Recording } from "./recording";
import type { Selection } from "./select";

/** A row of the table of instructions: an instruction, or what is said above those that follow. */
export interface AssemblyRow {
  key: string;
  /** -1: none. */
  instruction: number;
  kind: "instruction" | "symbol" | "line" | "method";
  text: string;
}

/** Of more instructions than these, only those near one with a cost are shown. */
const ROWS_MAX = 4000;
const NEAR = 100;

/** The instructions, with a row wherever another function, another line or another way of unwinding begins. */
export function assemblyRows(assembly: Assembly, total: Float64Array, textOf: (path: string, line: number) => string | undefined): AssemblyRow[] {
  const { blocks, files, instructions, unwinding } = assembly;
  const isShown = shown(total);
  const rows: AssemblyRow[] = [];
  let [block, method, line] = [0, 0, ""];
  instructions.address.forEach((address, at) => {
    const head = (kind: AssemblyRow["kind"], text: string) => rows.push({ key: `${kind} ${at}`, instruction: -1, kind, text });
    while (block < blocks.length && blocks[block].start <= address) {
      if (blocks.length > 1) head("symbol", blocks[block].symbol);
      block++;
      line = "";
    }
    let unwound = "";
    while (method < unwinding.address.length && unwinding.address[method] <= address) unwound = unwinding.method[method++];
    if (unwound) head("method", `unwound by ${unwound}`);
    if (!isShown(at)) {
      if (at > 0 && isShown(at - 1)) head("line", "…");
      line = "";
      return;
    }
    const path = files[instructions.file[at] - 1] ?? "?";
    const here = instructions.line[at] > 0 ? `${path}:${instructions.line[at]}` : "";
    if (here && here !== line) head("line", `${shortened(path)}:${instructions.line[at]}  ${textOf(path, instructions.line[at])?.trim() ?? ""}`);
    line = here;
    rows.push({ key: String(address), instruction: at, kind: "instruction", text: "" });
  });
  return rows;
}

/** Which instructions are shown. */
function shown(total: Float64Array): (at: number) => boolean {
  if (total.length <= ROWS_MAX) return () => true;
  const isShown = new Uint8Array(total.length);
  total.forEach((events, at) => events > 0 && isShown.fill(1, Math.max(0, at - NEAR), at + NEAR + 1));
  return (at) => isShown[at] === 1;
}

/** The last names of a path. */
const shortened = (path: string) => path.split("/").slice(-2).join("/");

/** What each instruction costs within a selection, in events. Waits count at their ends. */
export function costsOfInstructions(recording: Recording, selection: Selection, { instructions, costs }: Assembly) {
  const [own, total] = [new Float64Array(instructions.address.length), new Float64Array(instructions.address.length)];
  const { range, threads, states } = selection;
  for (let row = 0; row < costs.slice.length; row++) {
    const slice = costs.slice[row] - recording.firstSlice;
    const isWanted = (!threads || threads.has(costs.thread[row])) && (!states || states.has(costs.state[row]));
    if (!isWanted || (range && (slice < range.from || slice >= range.to))) continue;
    own[costs.instruction[row]] += costs.own[row];
    total[costs.instruction[row]] += costs.total[row];
  }
  return { own, total };
}
