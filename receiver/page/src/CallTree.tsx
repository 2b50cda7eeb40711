import { computed, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { childRows, hasChildren, rootRows, type TreeRow } from "./treeRows";
import { Change } from "./Change";
import { differenceHeads } from "./comparison";
import { openMenu } from "./Menu";
import { useRoomBelow } from "./room";
import { SortHead, type Sorting } from "./SortHead";
import { colourOf, focused, found, fullNameOf, isOpen, list, nameOf, openRows, recording, selectedRow, showCode, view } from "./state";
import { share } from "./tree";
import { cut, percent } from "./words";

const ROW_PX = 24;
const LEAST_PX = 20 * ROW_PX;
/** So many rows are made above and below those that are seen. */
const MARGIN_ROWS = 8;
/** A row with a larger share of all events is open until somebody closes it. */
const OPEN_SHARE = 0.5;
const OPEN_DEPTH_MAX = 60;

type Column = "own" | "total" | "name";
const sorting = signal<Sorting<Column>>({ by: "total", isDescending: true });

/** Rows that are made once: each has its children by its path. */
const model = computed(() => {
  const { by, isDescending } = sorting.value;
  const shown = view.value;
  const order = (a: TreeRow, b: TreeRow) =>
    by === "name" ? (nameOf(a.label) < nameOf(b.label) ? -1 : 1) : a[by] - b[by] || a.total - b.total;
  const sort = (rows: TreeRow[]) => rows.sort(isDescending ? (a, b) => order(b, a) : order);
  const known = new Map<TreeRow, TreeRow[]>();
  const children = (row: TreeRow) => {
    if (!known.has(row)) known.set(row, sort(childRows(shown, row)));
    return known.get(row)!;
  };
  return { roots: sort(rootRows(shown, list.value === "inverted")), children };
});

const isRowOpen = (row: TreeRow) =>
  isOpen(row.path) ?? (row.path.length < OPEN_DEPTH_MAX && share(row.total, view.value.events) > OPEN_SHARE);

/** The rows that are seen: those whose callers are open. */
const visible = computed(() => {
  const rows: TreeRow[] = [];
  const walk = [...model.value.roots].reverse();
  for (let row = walk.pop(); row; row = walk.pop()) {
    rows.push(row);
    if (!isRowOpen(row)) continue;
    const children = model.value.children(row);
    for (let at = children.length - 1; at >= 0; at--) walk.push(children[at]);
  }
  return rows;
});

function setOpen(row: TreeRow, value: boolean) {
  openRows.value = new Map(openRows.value).set(row.path.join("."), value);
}

const isSame = (one: number[], other: number[]) => one.length === other.length && one.every((label, at) => label === other[at]);

/** Every call, top-down or bottom-up; of a long tree, what is scrolled to. */
export function CallTree() {
  const first = useSignal(0);
  const scroll = useRef<HTMLDivElement>(null);
  const rows = visible.value;
  const base = view.value.base;
  const top = Math.min(first.value, Math.max(0, rows.length - 1));
  const roomPx = useRoomBelow(scroll, LEAST_PX);
  const shown = rows.slice(top, top + Math.ceil(roomPx / ROW_PX) + 2 * MARGIN_ROWS + 2);
  const selected = rows.findIndex((row) => isSame(row.path, selectedRow.value));

  const bringIntoSight = (at: number) => {
    const element = scroll.current!;
    // The head covers the first row.
    const [from, to] = [at * ROW_PX, (at + 2) * ROW_PX];
    if (from < element.scrollTop) element.scrollTop = from;
    else if (to > element.scrollTop + element.clientHeight) element.scrollTop = to - element.clientHeight;
  };
  useEffect(() => {
    if (selected >= 0) bringIntoSight(selected);
  }, [selectedRow.value, list.value]);

  const select = (at: number) => {
    if (rows[at]) selectedRow.value = rows[at].path;
  };
  const press = (event: KeyboardEvent) => {
    const row = rows[selected];
    const isRowShown = row && isRowOpen(row) && hasChildren(view.value, row);
    const actions: Record<string, () => void> = {
      ArrowDown: () => select(Math.min(selected + 1, rows.length - 1)),
      ArrowUp: () => select(Math.max(selected - 1, 0)),
      PageDown: () => select(Math.min(selected + 15, rows.length - 1)),
      PageUp: () => select(Math.max(selected - 15, 0)),
      Home: () => select(0),
      End: () => select(rows.length - 1),
      ArrowRight: () => row && (isRowShown ? select(selected + 1) : setOpen(row, true)),
      ArrowLeft: () => row && (isRowShown ? setOpen(row, false) : row.parent && (selectedRow.value = row.parent.path)),
      Enter: () => row && setOpen(row, !isRowOpen(row)),
      "*": () => row && openHeaviest(row),
      s: () => row && row.label < recording.value.functions.name.length && (focused.value = row.label),
      l: () => row && showCode(row.label),
    };
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
    if (!action || event.target !== scroll.current) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  const askAt = (event: MouseEvent, row: TreeRow) => {
    event.preventDefault();
    selectedRow.value = row.path;
    openMenu({ label: row.label, path: list.value === "inverted" ? null : row.path, x: event.clientX, y: event.clientY, from: scroll.current });
  };
  const pad = (count: number) => count > 0 && <tr aria-hidden="true"><td colSpan={base ? 5 : 4} style={{ height: `${count * ROW_PX}px`, padding: 0 }} /></tr>;
  return (
    <div
      class="list calls"
      ref={scroll}
      tabIndex={0}
      style={{ maxHeight: `${roomPx}px` }}
      onKeyDown={press}
      onFocus={() => selected < 0 && select(0)}
      onScroll={() => (first.value = Math.max(0, Math.floor(scroll.current!.scrollTop / ROW_PX) - MARGIN_ROWS))}
      onContextMenu={(event) => {
        // By keyboard.
        if (event.target !== scroll.current || selected < 0) return;
        const box = scroll.current!.getBoundingClientRect();
        askAt(new MouseEvent("contextmenu", { clientX: box.x + 60, clientY: box.y + 40 }), rows[selected]);
        event.preventDefault();
      }}
      role="group"
      aria-label={list.value === "inverted" ? "Call tree, bottom-up" : "Call tree, top-down"}
    >
      <table role="treegrid" aria-label="Call tree" aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            <SortHead sorting={sorting} by="total" text="total" isNumber />
            <SortHead sorting={sorting} by="own" text="self" isNumber />
            {base && <th class="number" scope="col">{base.seconds ? differenceHeads(recording.value, view.value).total : "change"}</th>}
            <SortHead sorting={sorting} by="name" text={list.value === "inverted" ? "function and its callers" : "function and what it calls"} />
            <th class="binary" scope="col">binary</th>
          </tr>
        </thead>
        <tbody>
          {pad(top)}
          {shown.map((row, at) => <Line key={row.path.join(".")} row={row} number={top + at + 2} isSelected={top + at === selected} onMenu={askAt} />)}
          {pad(rows.length - top - shown.length)}
        </tbody>
      </table>
    </div>
  );
}

/** Opens a row, and its heaviest one, and so on. */
function openHeaviest(row: TreeRow) {
  const open = new Map(openRows.value);
  let at: TreeRow | undefined = row;
  for (let level = 0; at && level < OPEN_DEPTH_MAX; level++) {
    open.set(at.path.join("."), true);
    at = model.value.children(at).reduce<TreeRow | undefined>((most, one) => (most && most.total >= one.total ? most : one), undefined);
  }
  openRows.value = open;
}

function Line({ row, number, isSelected, onMenu }: { row: TreeRow; number: number; isSelected: boolean; onMenu(event: MouseEvent, row: TreeRow): void }) {
  const { events, base } = view.value;
  const { functions } = recording.value;
  const name = nameOf(row.label);
  const [hasMore, open] = [hasChildren(view.value, row), isRowOpen(row)];
  const cell = (count: number) => (
    <td role="gridcell" class="number" style={{ "--part": 100 * share(count, events) }} title={recording.value.amount(count)}>{percent(share(count, events))}</td>
  );
  const isFound = found.value !== null && found.value[row.label] === 1;
  return (
    <tr
      aria-rowindex={number}
      aria-level={row.path.length}
      aria-expanded={hasMore ? open : undefined}
      aria-selected={isSelected}
      class={isFound ? "match" : ""}
      onClick={() => (selectedRow.value = row.path)}
      onDblClick={() => setOpen(row, !open)}
      onContextMenu={(event) => onMenu(event, row)}
    >
      {cell(row.total)}
      {cell(row.own)}
      {base && <Change role="gridcell" values={{ now: row.total, before: row.baseTotal }} comparisons={view.value.count} />}
      <td role="gridcell" class="name" style={{ "--level": Math.min(row.path.length - 1, 40) }} title={cut(fullNameOf(row.label), 1000)}>
        <span class="opener" aria-hidden="true" onClick={(event) => { event.stopPropagation(); setOpen(row, !open); }}>{hasMore ? (open ? "▾" : "▸") : ""}</span>
        <i class="swatch" style={{ background: colourOf(row.label) }} />
        {cut(name, 1000)}
      </td>
      <td role="gridcell" class="binary" title={cut(functions.path[row.label] ?? "")}>{functions.binary[row.label] ?? ""}</td>
    </tr>
  );
}
