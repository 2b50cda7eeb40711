import { computed, signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { CallTree } from "./CallTree";
import type { Row } from "./functions";
import { openMenu } from "./Menu";
import { colourOf, focused, found, fullNameOf, type List, list, nameOf, recording, rows, selection, showCode, view } from "./state";
import { isNoise } from "./significance";
import { share } from "./tree";
import { cut, percent, points, whole } from "./words";

const ROW_PX = 26;
const HEIGHT_PX = 16 * ROW_PX;

type Column = "own" | "total" | "change" | "totalChange" | "name" | "binary";
const sorting = signal<{ by: Column; isDescending: boolean }>({ by: "own", isDescending: true });

const changeOf = (row: Row) => share(row.own, view.value.events) - share(row.baseOwn, view.value.base?.events ?? 0);
const totalChangeOf = (row: Row) => share(row.total, view.value.events) - share(row.baseTotal, view.value.base?.events ?? 0);
const binaryOf = (label: number) => recording.value.functions.binary[label];
const compareText = (one: string, other: string) => (one < other ? -1 : one > other ? 1 : 0);
const orders: Record<Column, (a: Row, b: Row) => number> = {
  own: (a, b) => a.own - b.own || a.total - b.total,
  total: (a, b) => a.total - b.total || a.own - b.own,
  change: (a, b) => changeOf(a) - changeOf(b),
  totalChange: (a, b) => totalChangeOf(a) - totalChangeOf(b),
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

const LISTS: [List, string][] = [["functions", "Functions"], ["tree", "Call tree"], ["inverted", "Bottom-up"]];

/** What is below the flame graph: all functions, or the call tree. */
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
          {list.value === "functions" ? view.value.base && recording.value.isOfCpus ? "~ is noise: chance explains the change." : "A function's name shows who calls it and what it calls, a double click its source." : "Arrows open and close; * opens the heaviest way."} A right click changes the tree.
        </span>
      </div>
      {list.value === "functions" ? <FunctionTable /> : <CallTree />}
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
              <Head by="own" text="self" isNumber />
              <Head by="total" text="total" isNumber />
              {isCompared && <Head by="change" text="change of self" isNumber />}
              {isCompared && <Head by="totalChange" text="of total" isNumber />}
              <Head by="name" text="function" />
              <Head by="binary" text="binary" />
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

function Head({ by, text, isNumber }: { by: Column; text: string; isNumber?: boolean }) {
  const { by: now, isDescending } = sorting.value;
  const sort = () => (sorting.value = { by, isDescending: by === now ? !isDescending : Boolean(isNumber) });
  const state = by === now ? (isDescending ? "descending" : "ascending") : undefined;
  return (
    <th class={isNumber ? "number" : by} aria-sort={state} scope="col">
      <button type="button" onClick={sort}>{text}</button>
    </th>
  );
}

/** How a share changed, and whether chance explains it. */
function Change({ change, now, before }: { change: number; now: number; before: number }) {
  const { events, base } = view.value;
  const { range, base: baseRange } = selection.value;
  // A selection is compared with the rest of what it is a part of.
  const isPart = range !== null && baseRange !== null && baseRange.from <= range.from && range.to <= baseRange.to;
  const [old, oldEvents] = isPart ? [before - now, base!.events - events] : [before, base!.events];
  const isChance = recording.value.isOfCpus && isNoise([old, now], [oldEvents, events], rows.value.length);
  const title = isChance ? `noise: chance explains ${whole(old)} samples against ${whole(now)}` : `${whole(old)} against ${whole(now)}`;
  return <td class={`number change ${isChance ? "noise" : change > 0 ? "more" : "less"}`} title={title}>{points(change)}{isChance ? " ~" : ""}</td>;
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
  const difference = changeOf(row);
  const ask = (event: MouseEvent & { currentTarget: HTMLElement }) => {
    event.preventDefault();
    openMenu({ label: row.label, path: null, x: event.clientX, y: event.clientY, from: event.currentTarget.querySelector("button") });
  };
  return (
    <tr aria-rowindex={number} class={found.value ? "match" : ""} onContextMenu={ask} onDblClick={() => showCode(row.label)}>
      {cell(row.own)}
      {cell(row.total)}
      {base && <Change change={difference} now={row.own} before={row.baseOwn} />}
      {base && <Change change={totalChangeOf(row)} now={row.total} before={row.baseTotal} />}
      <td class="name">
        <i class="swatch" style={{ background: colourOf(row.label) }} title={kinds[functions.kind[row.label]].label} />
        <button type="button" title={cut(fullNameOf(row.label), 1000)} aria-pressed={focused.value === row.label} onClick={() => (focused.value = row.label)}>{cut(name, 1000)}</button>
      </td>
      <td class="binary" title={cut(functions.path[row.label])}>{functions.binary[row.label]}</td>
    </tr>
  );
}
