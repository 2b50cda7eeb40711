import { grownView, Grower } from "./grower";
import type { View } from "./tree";

/** Those who call a function, and what it calls: two trees at whose roots it stands. */
export interface Sandwich {
  callers: View;
  callees: View;
}

/** Every place of a function in which it is not called by itself, so that recursion counts once. */
function* outermost(view: View, label: number) {
  for (let node = 1; node < view.count;) {
    if (view.label[node] === label) {
      yield node;
      node = view.end[node];
    } else {
      node++;
    }
  }
}

/** Turns the view around a function. */
export function sandwich(view: View, label: number): Sandwich {
  return { callers: callers(view, label), callees: callees(view, label) };
}

function callers(view: View, label: number): View {
  const grower = new Grower();
  const ends: [at: number, node: number][] = [];
  for (const node of outermost(view, label)) {
    let at = grower.child(0, label);
    for (let above = view.parent[node]; above > 0; above = view.parent[above]) at = grower.child(at, view.label[above]);
    ends.push([at, node]);
  }
  const inverted = grownView(view, grower, (of, own) => ends.forEach(([at, node]) => (own[at] += of.total[node])));
  return { ...inverted, isInverted: true };
}

function callees(view: View, label: number): View {
  const grower = new Grower();
  const placed = new Int32Array(view.count);
  const nodes: number[] = [];
  for (const outer of outermost(view, label)) {
    for (let node = outer; node < view.end[outer]; node++) {
      placed[node] = grower.child(node === outer ? 0 : placed[view.parent[node]], view.label[node]);
      nodes.push(node);
    }
  }
  return grownView(view, grower, (of, own) => nodes.forEach((node) => (own[placed[node]] += of.own[node])));
}
