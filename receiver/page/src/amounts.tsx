import type { Signal } from "@preact/signals";
import { Change } from "./Change";
import { difference, differenceHeads } from "./comparison";
import type { Row } from "./functions";
import { SortHead, type Sorting } from "./SortHead";
import { recording, view } from "./state";
import { share } from "./tree";
import { percent } from "./words";

/** The columns of amounts, of which the last two are there where selections are compared. */
export type AmountColumn = "own" | "total" | "change" | "totalChange";

type Order = (a: Row, b: Row) => number;

const ownOf = (row: Row) => ({ now: row.own, before: row.baseOwn });
const totalOf = (row: Row) => ({ now: row.total, before: row.baseTotal });
const orders: Record<AmountColumn, Order> = {
  own: (a, b) => a.own - b.own || a.total - b.total,
  total: (a, b) => a.total - b.total || a.own - b.own,
  change: (a, b) => difference(view.value, ownOf(a)) - difference(view.value, ownOf(b)),
  totalChange: (a, b) => difference(view.value, totalOf(a)) - difference(view.value, totalOf(b)),
};

/** Rows by a column: of amounts, or of `texts`. */
export function sortedRows<Text extends string>(rows: Row[], { by, isDescending }: Sorting<AmountColumn | Text>, texts: Record<Text, Order>): Row[] {
  const all: Record<string, Order> = { ...orders, ...texts };
  const order = all[(by === "change" || by === "totalChange") && !view.value.base ? "own" : by];
  return [...rows].sort(isDescending ? (a, b) => order(b, a) : order);
}

/** The heads of the columns of amounts. */
export function AmountHeads<Text extends string>({ sorting }: { sorting: Signal<Sorting<AmountColumn | Text>> }) {
  const heads = differenceHeads(recording.value, view.value);
  return (
    <>
      <SortHead sorting={sorting} by="own" text="self" isNumber />
      <SortHead sorting={sorting} by="total" text="total" isNumber />
      {view.value.base && <SortHead sorting={sorting} by="change" text={heads.own} isNumber />}
      {view.value.base && <SortHead sorting={sorting} by="totalChange" text={heads.total} isNumber />}
    </>
  );
}

/** The amounts of a row, one of so many. */
export function Amounts({ row, comparisons }: { row: Row; comparisons: number }) {
  const { base, events } = view.value;
  const { isOfCpus } = recording.value;
  const cell = (count: number) => (
    <td class="number" style={{ "--part": 100 * share(count, events) }} title={`${recording.value.amount(count)}${isOfCpus ? ` ${recording.value.time(count)}` : ""}`}>
      {percent(share(count, events))}
    </td>
  );
  return (
    <>
      {cell(row.own)}
      {cell(row.total)}
      {base && <Change values={ownOf(row)} comparisons={comparisons} />}
      {base && <Change values={totalOf(row)} comparisons={comparisons} />}
    </>
  );
}
