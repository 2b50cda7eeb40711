import { recording, showView } from "./state";
import { cut } from "./words";

/** Chooses among the profiles of the page, or of what it follows. */
export function ViewChoice() {
  const { views: { names, shown }, live } = recording.value;
  if (names.length < 2) return null;
  const show = (view: number) => {
    // What is live has a page for each: the first one at the root, the others in folders.
    if (live) location.assign(`${shown > 0 ? "../" : "./"}${view > 0 ? `${view}/` : ""}`);
    else void showView(view);
  };
  return (
    <select class="view" aria-label="Profile" title="What the page shows" value={String(shown)} onChange={(event) => show(+event.currentTarget.value)}>
      {names.map((name, view) => <option key={view} value={String(view)}>{cut(name, 120)}</option>)}
    </select>
  );
}
