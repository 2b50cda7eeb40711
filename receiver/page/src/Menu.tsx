import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { addTransform, focused, fullNameOf, nameOf, recording, showCode } from "./state";
import { hideTip } from "./Tip";
import type { Transform } from "./transform";
import { cut } from "./words";

/** What the menu is about: a function, and the way to it where it is one of its calls. */
interface Asked {
  label: number;
  path: number[] | null;
  x: number;
  y: number;
  /** What gets the focus back. */
  from: HTMLElement | null;
}

const asked = signal<Asked | null>(null);

/** Shows what can be done with a function. Groups have no menu. */
export function openMenu(what: Asked) {
  if (what.label < 0 || what.label >= recording.value.functions.name.length) return;
  hideTip();
  asked.value = what;
}

export const isMenuOpen = () => asked.value !== null;

export function closeMenu() {
  const from = asked.value?.from;
  asked.value = null;
  from?.focus({ preventScroll: true });
}

/** What `copy` puts on the clipboard where no text is selected. */
let copied: string | null = null;

/** Copies the whole name of a function. */
export function copyName(label: number) {
  copied = fullNameOf(label);
  // Works for pages in files too, and asks for no permission.
  document.execCommand("copy");
  copied = null;
}

document.addEventListener("copy", (event) => {
  if (copied === null) return;
  event.clipboardData?.setData("text/plain", copied);
  event.preventDefault();
});

export function Menu() {
  const element = useRef<HTMLDivElement>(null);
  const what = asked.value;
  useLayoutEffect(() => {
    if (!what || !element.current) return;
    const { width, height } = element.current.getBoundingClientRect();
    const left = Math.max(8, Math.min(what.x, innerWidth - width - 8));
    const top = Math.max(8, Math.min(what.y, innerHeight - height - 8));
    Object.assign(element.current.style, { left: `${left}px`, top: `${top}px` });
    element.current.querySelector("button")?.focus();
  }, [what]);
  if (!what) return null;
  const { label, path } = what;
  const { binary } = recording.value.functions;
  const change = (transform: Transform) => () => addTransform(transform);
  const items: [string, () => void][] = [
    ["Copy name", () => copyName(label)],
    ["Callers and callees", () => (focused.value = label)],
    ["Source", () => showCode(label)],
  ];
  if (path) items.push(["Focus on this call", change({ kind: "subtree", path })]);
  items.push(
    ["Focus on function", change({ kind: "focus", label })],
    ["Hide function and its samples", change({ kind: "hide", label })],
    ["Merge function into its callers", change({ kind: "merge", label })],
  );
  if (binary[label]) items.push([`Merge ${cut(binary[label], 40)} into its callers`, change({ kind: "library", label })]);
  items.push(["Collapse recursion", change({ kind: "recursion", label })]);
  const press = (event: KeyboardEvent) => {
    const buttons = [...element.current!.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + buttons.length, Home: 0, End: buttons.length - 1 }[event.key];
    if (to !== undefined) buttons[to % buttons.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") closeMenu();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="shade-all" onClick={closeMenu} onContextMenu={(event) => { event.preventDefault(); closeMenu(); }}>
      <div class="context" role="menu" aria-label={cut(nameOf(label), 200)} ref={element} onKeyDown={press}>
        <b aria-hidden="true">{cut(nameOf(label), 200)}</b>
        {items.map(([text, act]) => (
          <button key={text} type="button" role="menuitem" onClick={(event) => { event.stopPropagation(); act(); closeMenu(); }}>{text}</button>
        ))}
      </div>
    </div>
  );
}
