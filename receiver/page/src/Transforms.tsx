import { nameOf, recording, removeTransform, transforms } from "./state";
import type { Transform } from "./transform";
import { cut } from "./words";

/** What is done to a function's tree, in words. */
function wordsOf(transform: Transform): string {
  switch (transform.kind) {
    case "subtree": return `this call of ${nameOf(transform.path[transform.path.length - 1])}`;
    case "focus": return `only ${nameOf(transform.label)}`;
    case "hide": return `without ${nameOf(transform.label)}`;
    case "merge": return `${nameOf(transform.label)} merged into its callers`;
    case "library": return `${recording.value.functions.binary[transform.label]} merged into its callers`;
    case "recursion": return `${nameOf(transform.label)} without recursion`;
    case "drop": return `without ${transform.query}`;
  }
}

/** What was done to the tree: each change can be undone. */
export function Transforms() {
  if (transforms.value.length === 0) return null;
  return (
    <ol class="transforms" aria-label="Changes to the tree">
      {transforms.value.map((transform, at) => (
        <li key={at}>
          <span title={cut(wordsOf(transform), 1000)}>{cut(wordsOf(transform), 80)}</span>
          <button type="button" aria-label={`Undo: ${cut(wordsOf(transform), 200)}`} title="Undo" onClick={() => removeTransform(at)}>×</button>
        </li>
      ))}
    </ol>
  );
}
