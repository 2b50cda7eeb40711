import type { Recording } from "./recording";
import { totals } from "./tree";

/** What boxes have their colour by. */
export type Colouring = "kind" | "binary" | "package";

/** The package, crate, namespace or module of each function, as far as its name tells; its binary elsewhere. */
export function packagesOf({ functions, kinds }: Recording): string[] {
  const { name, kind, binary, path } = functions;
  return name.map((whole, label) => {
    const language = kinds[kind[label]].label;
    const text = whole.replace(/^\[guessed\] /, "");
    switch (language) {
      case "kernel": return "kernel";
      case "Python": return path[label].replace(/^.*\//, "") || "Python";
      case "Go": return /^((?:[^.([/]+\/|[^([/]*\/)*[^./([]+)\./.exec(text)?.[1] ?? text;
      case "JIT": return /^L?([\w$./]+)[./][\w$]+(?:\.|;::)/.exec(text)?.[1].replaceAll("/", ".") ?? binary[label];
      default: return scope(text) ?? binary[label];
    }
  });
}

/** The outermost scope of a name of C++ or Rust. */
function scope(name: string): string | undefined {
  // Innermost brackets first; what a name begins with may be a type in brackets, as in Rust.
  let text = name.replace(/^<+(?:impl |dyn |&|\*)*/, "");
  for (let before = ""; before !== text && text.length < 5000;) {
    before = text;
    text = text.replace(/<[^<>()]*>|\([^<>()]*\)/g, "");
  }
  return /(?:^|[ &*])([A-Za-z_]\w*)::/.exec(text)?.[1];
}

/** At most this many have a colour of their own. */
const COLOURS = ["#f0b44c", "#6cc0ea", "#6cc9a1", "#e8865a", "#b3a2d6", "#db9fc0", "#f0e062", "#a7c957"];
const OTHERS = "#b8bcc2";

/** Groups of functions with the colour of each, the heaviest first, and the group of each function: -1 is all others. */
export function groupsBy(recording: Recording, colouring: "binary" | "package") {
  const names = colouring === "binary" ? recording.functions.binary : packagesOf(recording);
  const { tree, samples } = recording;
  const own = new Float64Array(tree.count);
  for (let row = 0; row < samples.count; row++) own[samples.node[row]] += samples.events[row];
  // As much as their boxes take of a flame graph.
  const weights = new Map<string, number>();
  totals(tree, own).forEach((events, node) => {
    const name = node > 0 ? names[tree.label[node]] : "";
    if (name) weights.set(name, (weights.get(name) ?? 0) + events);
  });
  const heaviest = [...weights].sort((a, b) => b[1] - a[1]).slice(0, COLOURS.length).map(([name]) => name);
  const places = new Map(heaviest.map((name, at) => [name, at]));
  const legend = heaviest.map((name, at) => ({ label: name, colour: COLOURS[at] }));
  const hasOthers = names.some((name) => !places.has(name));
  const colours = names.map((name) => (places.has(name) ? COLOURS[places.get(name)!] : OTHERS));
  return { names, colours, legend: hasOthers ? [...legend, { label: "others", colour: OTHERS }] : legend };
}
