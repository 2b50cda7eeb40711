import { grownView, Grower } from "./grower";
import type { Recording } from "./recording";
import { search } from "./search";
import { nodeAt, type View } from "./tree";

/** A change of the tree that is shown. Labels are functions; `path` leads from the root to a node, by labels. */
export type Transform =
  | { kind: "subtree"; path: number[] }
  | { kind: "focus" | "hide" | "merge" | "library" | "recursion"; label: number }
  | { kind: "drop"; query: string };

const OF_LABELS = ["focus", "hide", "merge", "library", "recursion"] as const;

/** Where a node goes, given where its caller went: a node of the grower, or -1: its events are left out. */
type Placing = (grower: Grower, node: number, above: number) => number;

/** A view after a change of its tree. */
export function transformed(recording: Recording, view: View, transform: Transform): View {
  const hasRoot = transform.kind !== "subtree" && transform.kind !== "focus";
  return grown(view, placing(recording, view, transform), hasRoot);
}

/** A view in which some of its nodes are merged into their callers. */
export function merged(view: View, isMerged: (node: number) => boolean): View {
  return grown(view, merging(view, isMerged), true);
}

/** A view whose nodes went elsewhere; whether what ended at its root is in it. */
function grown(view: View, place: Placing, hasRoot: boolean): View {
  const grower = new Grower();
  const placed = new Int32Array(view.count);
  for (let node = 1; node < view.count; node++) placed[node] = place(grower, node, placed[view.parent[node]]);
  if (!hasRoot) placed[0] = -1;
  return grownView(view, grower, (of, own) => {
    for (let node = 0; node < view.count; node++) if (placed[node] >= 0) own[placed[node]] += of.own[node];
  });
}

function merging({ label }: View, isMerged: (node: number) => boolean): Placing {
  return (grower, node, above) => (isMerged(node) ? above : grower.child(above, label[node]));
}

function placing(recording: Recording, view: View, transform: Transform): Placing {
  const { label } = view;
  const { binary } = recording.functions;
  switch (transform.kind) {
    case "subtree": {
      const root = nodeAt(view, transform.path);
      const isWithin = (node: number) => node >= root && node < view.end[root] && root > 0;
      return (grower, node, above) => (isWithin(node) ? grower.child(node === root ? 0 : above, label[node]) : -1);
    }
    case "focus": {
      const isWithin = new Uint8Array(view.count);
      return (grower, node, above) => {
        const isBelow = isWithin[view.parent[node]] === 1;
        if (!isBelow && label[node] !== transform.label) return -1;
        isWithin[node] = 1;
        return grower.child(isBelow ? above : 0, label[node]);
      };
    }
    case "hide":
      return without((node) => label[node] === transform.label);
    case "drop": {
      const found = search(recording, view, transform.query);
      return without((node) => found !== null && found[label[node]] === 1);
    }
    case "merge":
      return merging(view, (node) => label[node] === transform.label);
    case "library": {
      const library = binary[transform.label];
      return merging(view, (node) => label[node] < binary.length && binary[label[node]] === library);
    }
    case "recursion": {
      // The outermost call of the function on the way to each node; 0: there is none.
      const outermost = new Int32Array(view.count);
      const placedAt = new Int32Array(view.count);
      return (grower, node, above) => {
        const outer = outermost[view.parent[node]];
        const isFunction = label[node] === transform.label;
        outermost[node] = outer === 0 && isFunction ? node : outer;
        placedAt[node] = isFunction && outer > 0 ? placedAt[outer] : grower.child(above, label[node]);
        return placedAt[node];
      };
    }
  }

  function without(isHidden: (node: number) => boolean): Placing {
    return (grower, node, above) => (above < 0 || isHidden(node) ? -1 : grower.child(above, label[node]));
  }
}

/** A transform in a link. */
export function transformText(transform: Transform): string {
  switch (transform.kind) {
    case "subtree": return `subtree:${transform.path.join(".")}`;
    case "drop": return `drop:${transform.query}`;
    default: return `${transform.kind}:${transform.label}`;
  }
}

/** What a link asks for; `null` if it makes no sense. */
export function parseTransform(text: string, functionCount: number): Transform | null {
  const [, kind, argument] = /^([a-z]+):(.+)$/s.exec(text) ?? [];
  if (kind === "drop") return { kind, query: argument };
  const numbers = /^\d+(\.\d+)*$/.test(argument) ? argument.split(".").map(Number) : [];
  if (kind === "subtree") return numbers.length > 0 ? { kind, path: numbers } : null;
  const ofLabel = OF_LABELS.find((one) => one === kind);
  const [label] = numbers;
  return ofLabel && label < functionCount ? { kind: ofLabel, label } : null;
}

/** The same in a recording that has other numbers; `null` if what it is about is gone. */
export function relabelled(transform: Transform, relabel: (label: number) => number): Transform | null {
  if (transform.kind === "drop") return transform;
  if (transform.kind === "subtree") {
    const path = transform.path.map(relabel);
    return path.includes(-1) ? null : { ...transform, path };
  }
  const label = relabel(transform.label);
  return label < 0 ? null : { ...transform, label };
}
