import type { Recording } from "./recording";
import { merged } from "./transform";
import type { View } from "./tree";

/** Which inlined functions are apart from the function that they were inlined into: all; those of no standard library; none. */
export type Inlines = "all" | "own" | "none";

/** A view of a recording's own nodes with the other inlined functions folded into their callers. */
export function withInlines(recording: Recording, view: View, inlines: Inlines): View {
  const { source } = view;
  if (inlines === "all" || !source) return view;
  const { isInlined, functions } = recording;
  return merged(view, (node) =>
    source(node) > 0 && isInlined[source(node)] === 1 && (inlines === "none" || functions.isStandard[view.label[node]] === 1));
}
