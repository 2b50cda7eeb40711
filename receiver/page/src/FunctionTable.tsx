import { computed, signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { type AmountColumn, AmountHeads, Amounts, sortedRows } from "./amounts";
import { BinaryTable } from "./BinaryTable";
import { CallTree } from "./CallTree";
import type { Row } from "./functions";
import { openMenu } from "./Menu";
import { useRoomBelow } from "./room";
import { SortHead, type Sorting } from "./SortHead";
import { colourOf, focused, found, fullNameOf, type List, list, nameOf, recording, rows, showCode, view } from "./state";
import { cut, whole } from "./words";

const ROW_PX = 26;
const LEAST_PX = 16 * ROW_PX;
/** So many rows are made above and below those that are seen. */
const MARGIN_ROWS = 8;

const sorting = signal<Sorting<AmountColumn | "name" | "binary">>({ by: "own", isDescending: true });

const binaryOf = (label: number) => recording.value.functions.binary[label];
const compareText = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);

const sorted = computed(() => {
  const wanted = found.value ? rows.value.filter((row) => found.value![row.label] === 1) : rows.value;
  return sortedRows(wanted, sorting.value, {
    name: (a, b) => compareText(nameOf(a.label), nameOf(b.label)),
    binary: (a, b) => compareText(binaryOf(a.label), binaryOf(b.label)) || b.own - a.own,
  });
});

const LISTS: [List, string][] = [["functions", "Functions"], ["tree", "Call tree"], ["inverted", "Bottom-up"], ["binaries", "Binaries"]];

/** What is said beside each list. */
const HINTS: Record<List, string> = {
  functions: "A function's name shows who calls it and what it calls, a double click its source. A right click changes the tree.",
  tree: "Arrows open and close; * opens the heaviest path. A right click changes the tree.",
  inverted: "Arrows open and close; * opens the heaviest path. A right click changes the tree.",
  binaries: "A binary's name shows where it is.",
};

/** What is below the flame graph: all functions, the call tree, or all binaries. */
export function Lists() {
  const count = sorted.value.length;
  return (
    <section class="card lists" aria-label={LISTS.find(([one]) => one === list.value)![1]}>
      <div class="tools">
        <div class="tabs" role="group" aria-label="List">
          {LISTS.map(([one, text]) => (
            <button key={one} type="button" aria-pressed={list.value === one} onClick={() => (list.value = one)}>{text}</button>
          ))}
        </div>
        {list.value === "functions" && (
          <span class="faint" role="status">{whole(count)} {count === 1 ? "function" : "functions"}{found.value ? " found" : ""}</span>
        )}
        <span class="space" />
        <span class="faint hint">
          {view.value.base && recording.value.isOfCpus ? "~ is noise: chance explains the change." : HINTS[list.value]}
        </span>
      </div>
      {list.value === "functions" ? <FunctionTable /> : list.value === "binaries" ? <BinaryTable /> : <CallTree />}
    </section>
  );
}

/** Every function; of a long list, what is scrolled to. */
function FunctionTable() {
  const first = useSignal(0);
  const scroll = useRef<HTMLDivElement>(null);
  const all = sorted.value;
  const isCompared = view.value.base !== null;
  const top = Math.min(first.value, Math.max(0, all.length - 1));
  const roomPx = useRoomBelow(scroll, LEAST_PX);
  const shown = all.slice(top, top + Math.ceil(roomPx / ROW_PX) + 2 * MARGIN_ROWS + 2);
  const pad = (count: number) => count > 0 && <tr aria-hidden="true"><td colSpan={isCompared ? 6 : 4} style={{ height: `${count * ROW_PX}px`, padding: 0 }} /></tr>;
  return (
      <div
        class={`list ${isCompared ? "compared" : ""}`}
        ref={scroll}
        tabIndex={0}
        role="group"
        aria-label="Table of functions"
        style={{ maxHeight: `${roomPx}px` }}
        onScroll={() => (first.value = Math.max(0, Math.floor(scroll.current!.scrollTop / ROW_PX) - MARGIN_ROWS))}
      >
        <table aria-rowcount={all.length + 1}>
          <thead>
            <tr>
              <AmountHeads sorting={sorting} />
              <SortHead sorting={sorting} by="name" text="function" />
              <SortHead sorting={sorting} by="binary" text="binary" />
            </tr>
          </thead>
          <tbody>
            {pad(top)}
            {shown.map((row, position) => <Line key={row.label} row={row} number={top + position + 2} />)}
            {pad(all.length - top - shown.length)}
          </tbody>
        </table>
      </div>
  );
}

function Line({ row, number }: { row: Row; number: number }) {
  const { kinds, functions } = recording.value;
  const name = nameOf(row.label);
  const ask = (event: MouseEvent & { currentTarget: HTMLElement }) => {
    event.preventDefault();
    openMenu({ label: row.label, path: null, x: event.clientX, y: event.clientY, from: event.currentTarget.querySelector("button") });
  };
  return (
    <tr aria-rowindex={number} class={found.value ? "match" : ""} onContextMenu={ask} onDblClick={() => showCode(row.label)}>
      <Amounts row={row} comparisons={rows.value.length} />
      <td class="name">
        <i class="swatch" style={{ background: colourOf(row.label) }} title={kinds[functions.kind[row.label]].label} />
        <button type="button" title={cut(fullNameOf(row.label), 1000)} aria-pressed={focused.value === row.label} onClick={() => (focused.value = row.label)}>{cut(name, 1000)}</button>
      </td>
      <td class="binary" title={cut(functions.path[row.label])}>{functions.binary[row.label]}</td>
    </tr>
  );
}
