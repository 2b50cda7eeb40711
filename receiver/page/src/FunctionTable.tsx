import { computed, signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { BinaryTable } from "./BinaryTable";
import { CallTree } from "./CallTree";
import { Change } from "./Change";
import { difference } from "./comparison";
import type { Row } from "./functions";
import { openMenu } from "./Menu";
import { SortHead, type Sorting } from "./SortHead";
import { colourOf, focused, found, fullNameOf, type List, list, nameOf, recording, rows, showCode, view } from "./state";
import { share } from "./tree";
import { cut, percent, whole } from "./words";

const ROW_PX = 26;
const HEIGHT_PX = 16 * ROW_PX;

type Column = "own" | "total" | "change" | "totalChange" | "name" | "binary";
const sorting = signal<Sorting<Column>>({ by: "own", isDescending: true });

const ownOf = (row: Row) => ({ now: row.own, before: row.baseOwn });
const totalOf = (row: Row) => ({ now: row.total, before: row.baseTotal });
const binaryOf = (label: number) => recording.value.functions.binary[label];
const compareText = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
const orders: Record<Column, (a: Row, b: Row) => number> = {
  own: (a, b) => a.own - b.own || a.total - b.total,
  total: (a, b) => a.total - b.total || a.own - b.own,
  change: (a, b) => difference(view.value, ownOf(a)) - difference(view.value, ownOf(b)),
  totalChange: (a, b) => difference(view.value, totalOf(a)) - difference(view.value, totalOf(b)),
  name: (a, b) => compareText(nameOf(a.label), nameOf(b.label)),
  binary: (a, b) => compareText(binaryOf(a.label), binaryOf(b.label)) || b.own - a.own,
};

const sorted = computed(() => {
  const wanted = found.value ? rows.value.filter((row) => found.value![row.label] === 1) : [...rows.value];
  const isOfChange = sorting.value.by === "change" || sorting.value.by === "totalChange";
  const by = isOfChange && !view.value.base ? "own" : sorting.value.by;
  const order = orders[by];
  return wanted.sort(sorting.value.isDescending ? (a, b) => order(b, a) : order);
});

const LISTS: [List, string][] = [["functions", "Functions"], ["tree", "Call tree"], ["inverted", "Bottom-up"], ["binaries", "Binaries"]];

/** What is said beside each list. */
const HINTS: Record<List, string> = {
  functions: "A function's name shows who calls it and what it calls, a double click its source. A right click changes the tree.",
  tree: "Arrows open and close; * opens the heaviest way. A right click changes the tree.",
  inverted: "Arrows open and close; * opens the heaviest way. A right click changes the tree.",
  binaries: "A binary's name shows where it is.",
};

/** What is below the flame graph: all functions, the call tree, or all binaries. */
export function Lists() {
  const count = sorted.value.length;
  return (
    <section class="card" aria-label={LISTS.find(([one]) => one === list.value)![1]}>
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
  const shown = all.slice(top, top + 34);
  const pad = (count: number) => count > 0 && <tr aria-hidden="true"><td colSpan={isCompared ? 6 : 4} style={{ height: `${count * ROW_PX}px`, padding: 0 }} /></tr>;
  return (
      <div
        class="list"
        ref={scroll}
        tabIndex={0}
        role="group"
        aria-label="Table of functions"
        style={{ maxHeight: `${HEIGHT_PX}px` }}
        onScroll={() => (first.value = Math.max(0, Math.floor(scroll.current!.scrollTop / ROW_PX) - 8))}
      >
        <table aria-rowcount={all.length + 1}>
          <thead>
            <tr>
              <SortHead sorting={sorting} by="own" text="self" isNumber />
              <SortHead sorting={sorting} by="total" text="total" isNumber />
              {isCompared && <SortHead sorting={sorting} by="change" text="change of self" isNumber />}
              {isCompared && <SortHead sorting={sorting} by="totalChange" text="of total" isNumber />}
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
  const { events, base } = view.value;
  const name = nameOf(row.label);
  const cell = (count: number) => (
    <td class="number" style={{ "--part": 100 * share(count, events) }} title={`${recording.value.amount(count)}${recording.value.isOfCpus ? ` ${recording.value.time(count)}` : ""}`}>
      {percent(share(count, events))}
    </td>
  );
  const ask = (event: MouseEvent & { currentTarget: HTMLElement }) => {
    event.preventDefault();
    openMenu({ label: row.label, path: null, x: event.clientX, y: event.clientY, from: event.currentTarget.querySelector("button") });
  };
  return (
    <tr aria-rowindex={number} class={found.value ? "match" : ""} onContextMenu={ask} onDblClick={() => showCode(row.label)}>
      {cell(row.own)}
      {cell(row.total)}
      {base && <Change values={ownOf(row)} comparisons={rows.value.length} />}
      {base && <Change values={totalOf(row)} comparisons={rows.value.length} />}
      <td class="name">
        <i class="swatch" style={{ background: colourOf(row.label) }} title={kinds[functions.kind[row.label]].label} />
        <button type="button" title={cut(fullNameOf(row.label), 1000)} aria-pressed={focused.value === row.label} onClick={() => (focused.value = row.label)}>{cut(name, 1000)}</button>
      </td>
      <td class="binary" title={cut(functions.path[row.label])}>{functions.binary[row.label]}</td>
    </tr>
  );
}
