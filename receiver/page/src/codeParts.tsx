import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { codeOf, recording } from "./state";
import { share } from "./tree";
import { percent } from "./words";

/** A note above or instead of a table. */
export function Note({ children }: { children: ComponentChildren }) {
  return <p class="note faint">{children}</p>;
}

/** The cell of a cost, as a share of everything that is selected; empty where there is none. */
export function Cost({ events, of }: { events: number; of: number }) {
  if (events === 0) return <td class="number" />;
  return (
    <td class="number" style={{ "--part": 100 * share(events, of) }} title={amountOf(events)}>
      {percent(share(events, of))}
    </td>
  );
}

/** A number of events in the unit of the profile. */
export function amountOf(events: number): string {
  const { isOfCpus } = recording.value;
  const amount = recording.value.amount(events);
  return isOfCpus ? `${amount}, ${recording.value.time(events)}` : amount;
}

/** A list to scroll. Its hottest row comes into sight when another function is shown, or `text` has come or gone. */
export function useHottestInSight(text?: boolean) {
  const scroll = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const [list, row] = [scroll.current!, scroll.current!.querySelector<HTMLElement>("tr.hottest")];
    if (row) list.scrollTop = row.offsetTop - list.clientHeight / 3;
  }, [codeOf.value, text]);
  return scroll;
}
