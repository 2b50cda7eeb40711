import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { moveBeside } from "./beside";
import { compared, differenceText, isChance, sideText } from "./comparison";
import { linesOf } from "./select";
import { fullNameOf, recording, selection } from "./state";
import { nodeAt, pathTo, share, type View } from "./tree";
import { cut, percent, whole } from "./words";

const shown = signal<{ view: View; node: number; x: number; y: number } | null>(null);

/** Tells what a node is, beside a place of the window. Below zero: nothing. */
export function showTip(view: View, node: number, x: number, y: number) {
  shown.value = node < 0 ? null : { view, node, x, y };
}

export function hideTip() {
  shown.value = null;
}

/** Tells the same of a newer view. */
export function renewTip(before: View, view: View) {
  const tip = shown.value;
  if (tip?.view !== before) return;
  const path = pathTo(before, tip.node);
  const node = nodeAt(view, path);
  shown.value = view.depth[node] === path.length ? { ...tip, view, node } : null;
}

export function Tip() {
  const element = useRef<HTMLDivElement>(null);
  const tip = shown.value;
  useLayoutEffect(() => {
    if (tip && element.current) moveBeside(element.current, tip);
  }, [tip]);
  if (!tip) return null;
  const { view, node } = tip;
  const { periodNs, isTime, counted } = recording.value;
  const label = view.label[node];
  return (
    <div class="tip" role="tooltip" ref={element}>
      <b>{node === 0 ? "all" : fullNameOf(label)}</b>
      {node > 0 && <Where view={view} node={node} label={label} />}
      <table>
        <thead>
          <tr><td />{view.base ? <><th>before</th><th>now</th><th>change</th></> : <><th>share</th>{periodNs > 0 && <th>time</th>}{!isTime && <th>{counted}</th>}</>}</tr>
        </thead>
        <tbody>
          <Numbers name="total" events={view.total[node]} base={view.base?.total[node]} view={view} />
          {!view.isInverted && <Numbers name="self" events={view.own[node]} base={view.base?.own[node]} view={view} />}
        </tbody>
      </table>
    </div>
  );
}

function Where({ view, node, label }: { view: View; node: number; label: number }) {
  const { functions, kinds } = recording.value;
  if (label >= functions.name.length) return null;
  const source = view.source ? view.source(node) : -1;
  const lines = source > 0 && functions.path[label] ? linesOf(recording.value, selection.value, source) : [];
  const path = functions.path[label];
  const events = lines.reduce((sum, [, events]) => sum + events, 0);
  return (
    <>
      <div class="where">{[kinds[functions.kind[label]].label, functions.binary[label]].filter(Boolean).join(" · ")}</div>
      {path && (
        <div class="where">
          {cut(path)}{lines.length > 0 && ":"}
          {lines.slice(0, 4).map(([line, here], at) => (
            <span key={line}>{at > 0 && ", "}{line}{lines.length > 1 && ` (${percent(share(here, events))})`}</span>
          ))}
          {lines.length > 4 && ", …"}
        </div>
      )}
    </>
  );
}

function Numbers({ name, events, base, view }: { name: string; events: number; base: number | undefined; view: View }) {
  if (view.base && base !== undefined) {
    const values = { now: events, before: base };
    const { now, before } = compared(view, values);
    const isNoise = isChance(recording.value, view, values, view.count);
    return (
      <tr>
        <th>{name}</th><td>{sideText(recording.value, view, before)}</td><td>{sideText(recording.value, view, now)}</td>
        <td>{differenceText(recording.value, view, now - before)}{isNoise && " ~"}</td>
      </tr>
    );
  }
  const now = share(events, view.events);
  const { periodNs, isTime } = recording.value;
  return (
    <tr>
      <th>{name}</th><td>{percent(now)}</td>
      {periodNs > 0 && <td>{recording.value.time(events)}</td>}
      {!isTime && <td>{whole(events)}</td>}
    </tr>
  );
}
