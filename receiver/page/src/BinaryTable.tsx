import { computed, signal } from "@preact/signals";
import { type AmountColumn, AmountHeads, Amounts, sortedRows } from "./amounts";
import type { Row } from "./functions";
import { SortHead, type Sorting } from "./SortHead";
import { binaries, binaryRows, query, view } from "./state";
import { cut } from "./words";

/** What more than anybody looks at is cut to. */
const ROWS_MAX = 500;

const sorting = signal<Sorting<AmountColumn | "name">>({ by: "own", isDescending: true });

const nameOf = (row: Row) => binaries.value.names[row.label];
const sorted = computed(() => sortedRows(binaryRows.value, sorting.value, { name: (a, b) => (nameOf(a) < nameOf(b) ? -1 : 1) }));

/** Every binary, with what its functions did themselves and what they caused. A stack counts once for each binary in it. */
export function BinaryTable() {
  const all = sorted.value;
  return (
    <div class={`list binaries ${view.value.base ? "compared" : ""}`} tabIndex={0} role="group" aria-label="Table of binaries">
      <table>
        <thead>
          <tr>
            <AmountHeads sorting={sorting} />
            <SortHead sorting={sorting} by="name" text="binary" />
          </tr>
        </thead>
        <tbody>
          {all.slice(0, ROWS_MAX).map((row) => (
            <tr key={row.label}>
              <Amounts row={row} comparisons={all.length} />
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
