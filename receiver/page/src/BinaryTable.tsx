import { computed, signal } from "@preact/signals";
import { Change } from "./Change";
import { difference } from "./comparison";
import type { Row } from "./functions";
import { SortHead, type Sorting } from "./SortHead";
import { binaries, binaryRows, query, recording, view } from "./state";
import { share } from "./tree";
import { cut, percent } from "./words";

/** What more than anybody looks at is cut to. */
const ROWS_MAX = 500;

type Column = "own" | "total" | "change" | "totalChange" | "name";
const sorting = signal<Sorting<Column>>({ by: "own", isDescending: true });

const ownOf = (row: Row) => ({ now: row.own, before: row.baseOwn });
const totalOf = (row: Row) => ({ now: row.total, before: row.baseTotal });
const nameOf = (row: Row) => binaries.value.names[row.label];
const orders: Record<Column, (a: Row, b: Row) => number> = {
  own: (a, b) => a.own - b.own || a.total - b.total,
  total: (a, b) => a.total - b.total || a.own - b.own,
  change: (a, b) => difference(view.value, ownOf(a)) - difference(view.value, ownOf(b)),
  totalChange: (a, b) => difference(view.value, totalOf(a)) - difference(view.value, totalOf(b)),
  name: (a, b) => (nameOf(a) < nameOf(b) ? -1 : 1),
};

const sorted = computed(() => {
  const { by, isDescending } = sorting.value;
  const order = orders[(by === "change" || by === "totalChange") && !view.value.base ? "own" : by];
  return [...binaryRows.value].sort(isDescending ? (a, b) => order(b, a) : order);
});

/** Every binary, with what its functions did themselves and what they caused. A stack counts once for each binary in it. */
export function BinaryTable() {
  const all = sorted.value;
  const { base, events } = view.value;
  const cell = (count: number) => (
    <td class="number" style={{ "--part": 100 * share(count, events) }} title={recording.value.amount(count)}>{percent(share(count, events))}</td>
  );
  return (
    <div class="list binaries" tabIndex={0} role="group" aria-label="Table of binaries">
      <table>
        <thead>
          <tr>
            <SortHead sorting={sorting} by="own" text="self" isNumber />
            <SortHead sorting={sorting} by="total" text="total" isNumber />
            {base && <SortHead sorting={sorting} by="change" text="change of self" isNumber />}
            {base && <SortHead sorting={sorting} by="totalChange" text="of total" isNumber />}
            <SortHead sorting={sorting} by="name" text="binary" />
          </tr>
        </thead>
        <tbody>
          {all.slice(0, ROWS_MAX).map((row) => (
            <tr key={row.label}>
              {cell(row.own)}
              {cell(row.total)}
              {base && <Change values={ownOf(row)} comparisons={all.length} />}
              {base && <Change values={totalOf(row)} comparisons={all.length} />}
              <td class="name">
                <button type="button" title="Show where it is" disabled={nameOf(row) === ""} onClick={() => (query.value = `binary:${nameOf(row)}`)}>
                  {cut(nameOf(row), 1000) || "no binary"}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
