import { computed, effect, signal } from "@preact/signals";
import { functionsOf } from "./functions";
import { PLACE, shades } from "./palette";
import type { Recording } from "./recording";
import { sandwich } from "./sandwich";
import { matchedShare, search } from "./search";
import { type Grouping, type Range, type Selection, select } from "./select";
import { nodeAt, pathTo } from "./tree";

export const GROUPINGS: Grouping[] = ["none", "process", "thread", "trace", "span"];

/** All that the user can change. What links hold is in the address: `remember` and `recall`. */
export const recording = signal<Recording>(null!);
export const query = signal("");
export const range = signal<Range | null>(null);
export const base = signal<Range | null>(null);
/** Which of the two brushing sets, where ranges are compared. */
export const brushes = signal<"range" | "base">("range");
export const threads = signal<ReadonlySet<number> | null>(null);
export const grouping = signal<Grouping>("none");
export const isIcicle = signal(true);
/** The path to the node that is zoomed to, by labels. */
export const zoomPath = signal<number[]>([]);
/** The function whose callers and callees are shown; `null`: the whole flame graph is. */
export const focused = signal<number | null>(null);
export const theme = signal<"system" | "light" | "dark">("system");

export const selection = computed<Selection>(() => ({
  range: range.value,
  base: base.value,
  threads: threads.value,
  grouping: grouping.value,
}));
export const view = computed(() => select(recording.value, selection.value));
export const zoomed = computed(() => nodeAt(view.value, zoomPath.value));
export const rows = computed(() => functionsOf(view.value, recording.value.functions.name.length));
export const found = computed(() => search(recording.value, view.value, query.value));
export const matched = computed(() => found.value && matchedShare(view.value, found.value));
export const sides = computed(() => (focused.value === null ? null : sandwich(view.value, focused.value)));
const shadeOf = computed(() => shades(recording.value));

/** The name of a function or a group. */
export function nameOf(label: number): string {
  const { name } = recording.value.functions;
  return label < name.length ? name[label] : view.value.groups[label - name.length];
}

/** The colour of a function or a group. */
export const colourOf = (label: number) => shadeOf.value[label] ?? PLACE;

/** Zooms to a node of the whole flame graph. */
export function zoomTo(node: number) {
  zoomPath.value = pathTo(view.value, node);
}

/** Back to everything, one step after the other. */
export function escape() {
  if (focused.value !== null) focused.value = null;
  else if (zoomPath.value.length > 0) zoomPath.value = [];
  else if (query.value !== "") query.value = "";
  else if (base.value) base.value = null;
  else if (range.value) range.value = null;
}

/** Compares with the rest of the time: parts with one another, else the selected range with all, else both halves. */
export function compare() {
  const { parts, slices } = recording.value;
  if (parts.length > 1) {
    base.value = { from: parts[0].from, to: parts[0].to };
    range.value = { from: parts[1].from, to: parts[1].to };
  } else if (range.value) {
    base.value = { from: 0, to: slices };
  } else {
    const half = Math.floor(slices / 2);
    base.value = { from: 0, to: half };
    range.value = { from: half, to: slices };
  }
  brushes.value = "range";
}

const rangeText = ({ from, to }: Range) => `${from}-${to}`;

function parseRange(text: string | null): Range | null {
  const [, from, to] = /^(\d+)-(\d+)$/.exec(text ?? "") ?? [];
  if (!to || +from >= +to || +from >= recording.value.slices) return null;
  return { from: +from, to: Math.min(+to, recording.value.slices) };
}

function numbers(text: string | null, separator: string): number[] {
  return (text ?? "").split(separator).filter((part) => /^\d+$/.test(part)).map(Number);
}

/** What is shown, for a link to it. */
function remember(): string {
  const state = new URLSearchParams();
  const set = (key: string, value: string | null | false | undefined) => value && state.set(key, value);
  set("search", query.value);
  set("time", range.value && rangeText(range.value));
  set("base", base.value && rangeText(base.value));
  set("threads", threads.value && [...threads.value].join("."));
  set("by", grouping.value !== "none" && grouping.value);
  set("root", !isIcicle.value && "bottom");
  set("zoom", zoomPath.value.join("."));
  set("function", focused.value !== null && String(focused.value));
  return state.toString();
}

/** Shows what a link asks for. */
function recall() {
  const state = new URLSearchParams(location.hash.slice(1));
  const { functions, threads: known } = recording.value;
  query.value = state.get("search") ?? "";
  range.value = parseRange(state.get("time"));
  base.value = parseRange(state.get("base"));
  const wanted = numbers(state.get("threads"), ".").filter((thread) => thread < known.tid.length);
  threads.value = wanted.length > 0 ? new Set(wanted) : null;
  grouping.value = GROUPINGS.find((one) => one === state.get("by")) ?? "none";
  isIcicle.value = state.get("root") !== "bottom";
  zoomPath.value = numbers(state.get("zoom"), ".");
  const [label] = numbers(state.get("function"), ".");
  focused.value = label < functions.name.length ? label : null;
}

/** Keeps the address and the state alike from now on. */
export function link() {
  const { parts } = recording.value;
  if (location.hash.length > 1) recall();
  else if (parts.length > 1) compare();
  addEventListener("hashchange", () => {
    if (location.hash.slice(1) !== remember()) recall();
  });
  effect(() => {
    const hash = remember();
    try {
      history.replaceState(null, "", `#${hash}`);
    } catch {
      // Some browsers forbid it for files, or so often.
    }
  });
}

const THEME = "sidewinder.theme";
const darkness = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(darkness.matches);
export const isDark = computed(() => (theme.value === "system" ? isSystemDark.value : theme.value === "dark"));

/** Keeps the theme. */
export function dress() {
  try {
    const kept = localStorage.getItem(THEME);
    if (kept === "light" || kept === "dark") theme.value = kept;
  } catch {
    // Not every browser keeps anything for files.
  }
  darkness.addEventListener("change", () => (isSystemDark.value = darkness.matches));
  effect(() => {
    document.documentElement.dataset.theme = isDark.value ? "dark" : "light";
    try {
      localStorage.setItem(THEME, theme.value);
    } catch {
      // The same.
    }
  });
}
