import { computed, effect, signal } from "@preact/signals";
import type { Assembly, SourceAnswer, SourceFile } from "./document";
import { costsOf } from "./lines";
import { codeForm, codeOf, recording, selection } from "./state";

/** What is known of the code of a function: `undefined` while it is asked for; a text says why there is none. */
export type Known<T> = T | string | undefined;

/** How much older than a live recording what was fetched may be while it is looked at. */
const RENEWAL_MS = 5000;

/** What was fetched, by form and function. */
const fetched = signal<ReadonlyMap<string, SourceFile[] | Assembly | string>>(new Map());
const askedAt = new Map<string, number>();

const keyOf = (form: string, label: number) => {
  const { functions } = recording.value;
  return keyOfFunction(form, functions.binary[label], functions.name[label]);
};
const keyOfFunction = (form: string, binary: string, name: string) => `${folder()}${form}\n${binary}\n${name}`;
/** Where whoever serves the page has what belongs to the profile that is shown: that of a live page is beside the page. */
const folder = () => {
  const { live, views } = recording.value;
  return live || views.shown === 0 ? "" : `${views.shown}/`;
};

/** What the lines of the function cost whose code is shown. */
export const costs = computed(() => (codeOf.value === null ? null : costsOf(recording.value, selection.value, codeOf.value)));

/** The text of the source files of a function. */
export function sourcesOf(label: number): Known<SourceFile[]> {
  const { sources, servesCode } = recording.value;
  return servesCode ? (fetched.value.get(keyOf("source", label)) as Known<SourceFile[]>) : sources;
}

/** The instructions of a function. */
export function assemblyOf(label: number): Known<Assembly> {
  const { assembly, functions, servesCode } = recording.value;
  if (servesCode) return fetched.value.get(keyOf("assembly", label)) as Known<Assembly>;
  const held = assembly.find(({ name, binary }) => name === functions.name[label] && binary === functions.binary[label]);
  return held ?? (assembly.length > 0
    ? "The page only contains the instructions of the functions with the most samples, not this one's."
    : "The page contains no instructions. Record with --assembly, or show the profile with `sidewinder view` where its binary is.");
}

/** Asks for what is shown and not known. Beside instructions the text of their lines is shown. */
effect(() => {
  const label = codeOf.value;
  if (label === null || !recording.value.servesCode) return;
  for (const form of codeForm.value === "assembly" ? ["source", "assembly"] : ["source"]) {
    const [key, now] = [keyOf(form, label), performance.now()];
    const since = askedAt.get(key);
    if (since !== undefined && !(recording.value.live && now - since > RENEWAL_MS)) continue;
    askedAt.set(key, now);
    void ask(form, label, key);
  }
});

async function ask(form: string, label: number, key: string) {
  let known: SourceFile[] | Assembly | string;
  try {
    const response = await fetch(`${folder()}${form}/${label}`);
    if (response.ok) {
      const answer: SourceAnswer | Assembly = await response.json();
      // A live profiler may have numbered its functions anew, which the page learns with its next answer.
      if (keyOfFunction(form, answer.binary, answer.name) !== key) throw new Error("its functions have other numbers now");
      known = "sources" in answer ? answer.sources : answer;
    } else {
      known = await response.text();
    }
  } catch (error) {
    askedAt.delete(key);
    known = `The server of this page does not respond: ${error}`;
  }
  fetched.value = new Map(fetched.value).set(key, known);
}
