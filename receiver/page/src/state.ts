import { batch, computed, effect, signal } from "@preact/signals";
import { rowsOf } from "./functions";
import { change, isNodeChance } from "./comparison";
import { keepInAddress } from "./history";
import { type Inlines, withInlines } from "./inlines";
import { lockSites } from "./lockSites";
import { differenceColour, PLACE, shades } from "./palette";
import type { Recording } from "./recording";
import { sandwich } from "./sandwich";
import { matchedShare, search } from "./search";
import { type Grouping, groupNames, type Range, type Selection, select } from "./select";
import { type Colouring, groupsBy } from "./packages";
import { parseTransform, relabelled, type Transform, transformed, transformText } from "./transform";
import { nodeAt, pathTo, type View } from "./tree";

export const GROUPINGS: Grouping[] = ["none", "process", "thread", "container", "trace", "span"];

/** All that the user can change. What links hold is in the address: `remember` and `recall`. */
export const recording = signal<Recording>(null!);
export const query = signal("");
export const range = signal<Range | null>(null);
export const base = signal<Range | "rest" | null>(null);
/** Whether events a second are compared, and not shares of events. */
export const isPerSecond = signal(false);
/** Which of the two brushing sets, where ranges are compared. */
export const brushes = signal<"range" | "base">("range");
export const threads = signal<ReadonlySet<number> | null>(null);
/** Of states of threads, counted from 1; `null`: all. */
export const states = signal<ReadonlySet<number> | null>(null);
export const grouping = signal<Grouping>("none");
export const isIcicle = signal(true);
export const inlines = signal<Inlines>("all");
/** What is done to the tree, one after the other. */
export const transforms = signal<Transform[]>([]);
/** What is listed below the flame graph. */
export type List = "functions" | "tree" | "inverted" | "binaries";
export const list = signal<List>("functions");
/** The row of the call tree that is selected, by labels. */
export const selectedRow = signal<number[]>([]);
/** The rows of the call tree that were opened or closed, by their paths. */
export const openRows = signal<ReadonlyMap<string, boolean>>(new Map());
export const colouring = signal<Colouring>("kind");
/** The path to the node that is zoomed to, by labels. */
export const zoomPath = signal<number[]>([]);
/** The function whose callers and callees are shown; `null`: the whole flame graph is. */
export const focused = signal<number | null>(null);
/** The function whose code is shown; `null`: none. */
export const codeOf = signal<number | null>(null);
export const codeForm = signal<"source" | "assembly">("source");
/** Whether functions are named in full; `null`: as the document says. */
export const wantsFullNames = signal<boolean | null>(null);
export const theme = signal<"system" | "light" | "dark">("system");

export const selection = computed<Selection>(() => ({
  range: range.value,
  // Of all of the time nothing is left.
  base: base.value === "rest" && !range.value ? null : base.value,
  isPerSecond: isPerSecond.value,
  threads: threads.value,
  states: states.value,
  grouping: grouping.value,
}));
const selectedView = computed(() => withInlines(recording.value, select(recording.value, selection.value), inlines.value));
export const view = computed(() =>
  transforms.value.reduce((view, transform) => transformed(recording.value, view, transform), selectedView.value));
export const zoomed = computed(() => nodeAt(view.value, zoomPath.value));
export const rows = computed(() => {
  const count = recording.value.functions.name.length;
  return rowsOf(view.value, (label) => (label < count ? label : -1), count);
});
/** The binaries of functions, in the order in which functions have them. */
export const binaries = computed(() => {
  const { binary } = recording.value.functions;
  const names = [...new Set(binary)];
  const numbers = new Map(names.map((name, number) => [name, number]));
  return { names, ofFunction: Int32Array.from(binary, (name) => numbers.get(name)!) };
});
export const binaryRows = computed(() => {
  const { names, ofFunction } = binaries.value;
  return rowsOf(view.value, (label) => (label < ofFunction.length ? ofFunction[label] : -1), names.length);
});
export const found = computed(() => search(recording.value, view.value, query.value));
export const matched = computed(() => found.value && matchedShare(view.value, found.value));
export const sides = computed(() => (focused.value === null ? null : sandwich(view.value, focused.value)));
/** Binaries or packages with their colours; `null` where the kind of a function decides. */
export const colourGroups = computed(() => (colouring.value === "kind" ? null : groupsBy(recording.value, colouring.value)));
const shadeOf = computed(() => colourGroups.value?.colours ?? shades(recording.value));

export const hasFullNames = computed(() => wantsFullNames.value ?? recording.value.hasFullNames);

const sites = computed(() => lockSites(recording.value));

/** The name of a function or a group, as it is shown: a lock with the function that waits for it. */
export function nameOf(label: number): string {
  const { name, short } = recording.value.functions;
  const shown = label < name.length && !hasFullNames.value ? short[label] : fullNameOf(label);
  const site = sites.value.get(label);
  return site === undefined ? shown : `${shown} in ${nameOf(site)}`;
}

/** The whole name of a function or a group. */
export function fullNameOf(label: number): string {
  const { name } = recording.value.functions;
  return label < name.length ? name[label] : view.value.groups[label - name.length];
}

/** The colour of a function or a group. */
export const colourOf = (label: number) => shadeOf.value[label] ?? PLACE;

/** The colour of a node: what it is, or, where two selections are compared, how it changed, as far as chance does not explain it. */
export function colourOfNode(view: View, node: number): string {
  if (!view.base) return colourOf(view.label[node]);
  const values = { now: view.total[node], before: view.base.total[node] };
  return differenceColour(isNodeChance(recording.value, view, node) ? 0 : change(view, values));
}

/** Zooms to a node of the whole flame graph. */
export function zoomTo(node: number) {
  zoomPath.value = pathTo(view.value, node);
}

/** Shows the code of a function. Groups have none. */
export function showCode(label: number) {
  if (label < 0 || label >= recording.value.functions.name.length) return;
  // A double click selects a word.
  getSelection()?.removeAllRanges();
  codeOf.value = label;
}

/** Whether any function is inlined. */
export const hasInlined = computed(() => inlines.value !== "all" || recording.value.hasInlined);

/** Shows these inlined functions. What is zoomed to may not be there afterwards. */
export function showInlines(shown: Inlines) {
  batch(() => {
    inlines.value = shown;
    zoomPath.value = [];
    focused.value = null;
  });
}

/** Changes the tree. What is zoomed to may not be there afterwards. */
export function addTransform(transform: Transform) {
  batch(() => {
    transforms.value = [...transforms.value, transform];
    zoomPath.value = [];
    focused.value = null;
  });
}

/** Undoes one of the changes of the tree. */
export function removeTransform(at: number) {
  batch(() => {
    transforms.value = transforms.value.filter((_, other) => other !== at);
    zoomPath.value = [];
  });
}

/** Whether a row of the call tree was opened or closed, or leads to the one that is selected. */
export function isOpen(path: number[]): boolean | undefined {
  const chosen = openRows.value.get(path.join("."));
  if (chosen !== undefined) return chosen;
  const selected = selectedRow.value;
  return path.length < selected.length && path.every((label, at) => label === selected[at]) ? true : undefined;
}

/** Undoes one choice: the search first, then from what narrows the graph most to what narrows it least. */
export function escape() {
  if (query.value !== "") query.value = "";
  else if (codeOf.value !== null) codeOf.value = null;
  else if (focused.value !== null) focused.value = null;
  else if (zoomPath.value.length > 0) zoomPath.value = [];
  else if (transforms.value.length > 0) removeTransform(transforms.value.length - 1);
  else if (base.value) base.value = null;
  else if (range.value) range.value = null;
  else if (states.value) states.value = null;
  else if (threads.value) threads.value = null;
}

/** Compares: parts with one another, else the selected range with the rest of the time, else both halves. */
export function compare() {
  const { parts, slices } = recording.value;
  if (parts.length > 1) {
    base.value = { from: parts[0].from, to: parts[0].to };
    range.value = { from: parts[1].from, to: parts[1].to };
  } else if (range.value) {
    base.value = "rest";
  } else {
    const half = Math.floor(slices / 2);
    base.value = { from: 0, to: half };
    range.value = { from: half, to: slices };
  }
  brushes.value = "range";
}

/** A range for a link: counted from the first slice there ever was, so that it means the same in a window that moves. */
function rangeText({ from, to }: Range): string {
  const { firstSlice } = recording.value;
  return `${firstSlice + from}-${firstSlice + to}`;
}

function parseRange(text: string | null): Range | null {
  const { firstSlice, slices } = recording.value;
  const [, first, last] = /^(\d+)-(\d+)$/.exec(text ?? "") ?? [];
  const [from, to] = [Math.max(0, +first - firstSlice), Math.min(+last - firstSlice, slices)];
  return from < to ? { from, to } : null;
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
  set("base", base.value === "rest" ? base.value : base.value && rangeText(base.value));
  set("per", isPerSecond.value && "second");
  set("threads", threads.value && [...threads.value].join("."));
  set("states", states.value && [...states.value].join("."));
  set("by", grouping.value !== recording.value.grouping && grouping.value);
  set("view", recording.value.views.shown > 0 && !recording.value.live && String(recording.value.views.shown));
  set("root", !isIcicle.value && "bottom");
  set("inlines", inlines.value !== "all" && inlines.value);
  set("names", wantsFullNames.value !== null && (wantsFullNames.value ? "full" : "short"));
  for (const transform of transforms.value) state.append("do", transformText(transform));
  set("list", list.value !== "functions" && list.value);
  set("row", list.value !== "functions" && selectedRow.value.join("."));
  set("colour", colouring.value !== "kind" && colouring.value);
  set("zoom", zoomPath.value.join("."));
  set("function", focused.value !== null && String(focused.value));
  set("code", codeOf.value !== null && String(codeOf.value));
  set("form", codeOf.value !== null && codeForm.value !== "source" && codeForm.value);
  return state.toString();
}

/** The profile that a link asks for, of those of the page. */
export function viewOfLink(): number {
  const [view] = numbers(new URLSearchParams(location.hash.slice(1)).get("view"), ".");
  return view ?? 0;
}

/** Shows what a link asks for. */
async function recall() {
  const link = location.hash;
  const { live, views } = recording.value;
  const wanted = viewOfLink() < views.names.length ? viewOfLink() : 0;
  const next = live || wanted === views.shown ? recording.value : await load(wanted);
  // Another link was followed meanwhile.
  if (location.hash !== link) return;
  unchosen(() => {
    recording.value = next;
    recallEach();
  });
}

/** Reads another profile of the page. */
let load: (view: number) => Promise<Recording>;

/** Shows another profile of the page. What does not depend on its times and states stays as it was chosen. */
export async function showView(view: number) {
  const next = await load(view);
  batch(() => {
    renew(next);
    [range.value, base.value, states.value] = [null, null, null];
  });
}

/** Whether what changes was chosen by the user just now, and not by a link or because more data came. */
let isChosen = true;

/** Changes what the user did not choose: it is no step of the browser's history. */
export function unchosen(change: () => void) {
  isChosen = false;
  try {
    batch(change);
  } finally {
    isChosen = true;
  }
}

function recallEach() {
  const state = new URLSearchParams(location.hash.slice(1));
  const { functions, threads: known, states: ofThreads } = recording.value;
  query.value = state.get("search") ?? "";
  range.value = parseRange(state.get("time"));
  base.value = state.get("base") === "rest" && range.value ? "rest" : parseRange(state.get("base"));
  isPerSecond.value = state.get("per") === "second";
  const wanted = numbers(state.get("threads"), ".").filter((thread) => thread < known.tid.length);
  threads.value = wanted.length > 0 ? new Set(wanted) : null;
  const waits = numbers(state.get("states"), ".").filter((one) => one >= 1 && one <= ofThreads.state.length);
  states.value = waits.length > 0 ? new Set(waits) : null;
  grouping.value = GROUPINGS.find((one) => one === state.get("by")) ?? recording.value.grouping;
  isIcicle.value = state.get("root") !== "bottom";
  inlines.value = (["own", "none"] as const).find((one) => one === state.get("inlines")) ?? "all";
  const asked = state.getAll("do").map((text) => parseTransform(text, functions.name.length));
  transforms.value = asked.filter((transform) => transform !== null);
  list.value = (["tree", "inverted", "binaries"] as const).find((one) => one === state.get("list")) ?? "functions";
  selectedRow.value = numbers(state.get("row"), ".");
  colouring.value = (["binary", "package"] as const).find((one) => one === state.get("colour")) ?? "kind";
  const names = state.get("names");
  wantsFullNames.value = names === "full" || names === "short" ? names === "full" : null;
  zoomPath.value = numbers(state.get("zoom"), ".");
  const [label] = numbers(state.get("function"), ".");
  focused.value = label < functions.name.length ? label : null;
  const [code] = numbers(state.get("code"), ".");
  codeOf.value = code < functions.name.length ? code : null;
  codeForm.value = state.get("form") === "assembly" ? "assembly" : "source";
}

/**
 * Shows a newer recording of the same, in which functions and threads may have other numbers and slices are counted from
 * later: what the user chose stays what it is.
 */
export function renew(next: Recording) {
  const before = recording.value;
  const label = relabel(before, next);
  const later = next.firstSlice - before.firstSlice;
  const move = (limits: Range | null) =>
    limits && limits.to > later ? { from: Math.max(0, limits.from - later), to: limits.to - later } : null;
  batch(() => {
    const { value: path } = zoomPath;
    const moved = path.map(label);
    const lost = moved.indexOf(-1);
    const threadAt = sameIn(next, before, threadKey, next.threads.tid.length);
    const kept = threads.value && [...threads.value].map(threadAt).filter((thread) => thread >= 0);
    recording.value = next;
    transforms.value = transforms.value.map((transform) => relabelled(transform, label)).filter((transform) => transform !== null);
    selectedRow.value = selectedRow.value.map(label);
    const paths = [...openRows.value].map(([path, isOpen]) => [path.split(".").map((one) => label(+one)).join("."), isOpen] as const);
    openRows.value = new Map(paths);
    zoomPath.value = lost < 0 ? moved : moved.slice(0, lost);
    if (focused.value !== null) focused.value = label(focused.value) < 0 ? null : label(focused.value);
    if (codeOf.value !== null) codeOf.value = label(codeOf.value) < 0 ? null : label(codeOf.value);
    threads.value = kept && kept.length > 0 ? new Set(kept) : null;
    [range.value, base.value] = [move(range.value), base.value === "rest" ? base.value : move(base.value)];
  });
}

const functionKey = ({ functions }: Recording, at: number) => `${functions.binary[at]}\n${functions.name[at]}`;
const threadKey = ({ threads }: Recording, at: number) =>
  [threads.pid[at], threads.tid[at], threads.process[at], threads.name[at]].join("\n");

/** Where the things of one recording are in another: mostly where they were. */
function sameIn(next: Recording, before: Recording, key: (of: Recording, at: number) => string, count: number) {
  let places: Map<string, number> | undefined;
  return (at: number) => {
    const wanted = key(before, at);
    if (at < count && key(next, at) === wanted) return at;
    places ??= new Map(Array.from({ length: count }, (_, place) => [key(next, place), place]));
    return places.get(wanted) ?? -1;
  };
}

function relabel(before: Recording, next: Recording) {
  const [functions, nextFunctions] = [before.functions.name.length, next.functions.name.length];
  const functionAt = sameIn(next, before, functionKey, nextFunctions);
  const [groups, nextGroups] = [before, next].map((of) => groupNames(of, grouping.value));
  return (label: number) => {
    if (label < functions) return functionAt(label);
    const group = nextGroups.indexOf(groups[label - functions]);
    return group < 0 ? -1 : nextFunctions + group;
  };
}

/** Keeps the address and the state alike from now on. `loadView` reads another profile of the page. */
export function link(loadView: typeof load) {
  load = loadView;
  const { parts } = recording.value;
  grouping.value = recording.value.grouping;
  if (location.hash.length > 1) batch(recallEach);
  else if (parts.length > 1) compare();
  addEventListener("hashchange", () => {
    if (location.hash.slice(1) !== remember()) void recall();
  });
  unchosen(() => effect(() => keepInAddress(remember(), isChosen)));
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
