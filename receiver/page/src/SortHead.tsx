import type { Signal } from "@preact/signals";

/** What a table is sorted by. */
export interface Sorting<Column> {
  by: Column;
  isDescending: boolean;
}

/** The head of a column, which sorts by it: numbers from the largest at first. */
export function SortHead<Column extends string>({ sorting, by, text, isNumber }: { sorting: Signal<Sorting<Column>>; by: Column; text: string; isNumber?: boolean }) {
  const { by: now, isDescending } = sorting.value;
  const sort = () => (sorting.value = { by, isDescending: by === now ? !isDescending : Boolean(isNumber) });
  const state = by === now ? (isDescending ? "descending" : "ascending") : undefined;
  return (
    <th class={isNumber ? "number" : by} aria-sort={state} scope="col">
      <button type="button" onClick={sort}>{text}</button>
    </th>
  );
}
