import type { SourceFile } from "./document";
import type { FileCosts, LineCost } from "./lines";

/** A row of the table of a file's lines. */
export interface SourceRow {
  /** 0: the cost of what has no line. */
  line: number;
  /** `undefined`: its text is not known. */
  text: string | undefined;
  cost: LineCost | undefined;
  /** Whether lines before it are left out. */
  isAfterGap: boolean;
}

/** How many lines without cost are shown before and after one with a cost. */
const CONTEXT_LINES = 12;
/** The most lines of a file that are shown. */
const ROWS_MAX = 4000;

/** The lines of a file whose text is known. */
export function textsOf({ parts }: SourceFile): Map<number, string> {
  const texts = new Map<number, string>();
  for (const { line, text } of parts) text.forEach((one, at) => texts.set(line + at, one));
  return texts;
}

/** The lines of a file that a function has, with their neighbours where the text is known. */
export function rowsOf(costs: FileCosts, text: SourceFile | undefined): SourceRow[] {
  const texts = text ? textsOf(text) : new Map<number, string>();
  const costly = [...costs.lines.keys()].filter((line) => line > 0).sort((a, b) => a - b);
  const shown = new Set(costly);
  for (const line of costly) {
    for (let at = line - CONTEXT_LINES; at <= line + CONTEXT_LINES && shown.size < ROWS_MAX; at++) {
      if (texts.has(at)) shown.add(at);
    }
  }
  const lines = [...shown].sort((a, b) => a - b);
  if (costs.lines.has(0)) lines.unshift(0);
  return lines.map((line, at) => ({
    line,
    text: texts.get(line),
    cost: costs.lines.get(line),
    isAfterGap: at > 0 && lines[at - 1] > 0 && lines[at - 1] !== line - 1,
  }));
}

/** The row with the largest cost; -1 where there is none. */
export function hottest(rows: { cost: LineCost | undefined }[]): number {
  let best = -1;
  rows.forEach(({ cost }, at) => {
    if (cost && (best < 0 || cost.total > rows[best].cost!.total)) best = at;
  });
  return best;
}
