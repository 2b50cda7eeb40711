import type { RefObject } from "preact";

const KEYS: [keys: string[], what: string][] = [
  [["/"], "search"],
  [["←", "↑", "→", "↓"], "move through the flame graph when it has the focus"],
  [["Enter", "click"], "zoom"],
  [["Backspace"], "zoom out one level"],
  [["s", "Shift + click"], "callers and callees of a function"],
  [["m", "right click"], "actions on a function: focus, hide, merge, collapse, copy its name"],
  [["l", "double click"], "a function's source and assembly, with costs; also in the lists"],
  [["i"], "root at the top or at the bottom"],
  [["n"], "short or full function names"],
  [["c"], "compare the selected range with the rest of the time, or two ranges; or stop comparing"],
  [["p"], "pause or resume a live page"],
  [["drag"], "on the timeline: select a range; with Shift: the range to compare with"],
  [["Esc"], "back, step by step: the search, the code, the function, the zoom, the last change of the tree, the range of time, the state, the thread"],
  [["Alt + ←"], "the previous view, like the browser's Back"],
  [["?"], "these keys"],
];

/** What keys do, and what the search takes. */
export function Keys({ dialog }: { dialog: RefObject<HTMLDialogElement | null> }) {
  const close = () => dialog.current?.close();
  return (
    <dialog ref={dialog} class="keys" aria-labelledby="keys" onClick={(event) => event.target === dialog.current && close()}>
      <div class="head">
        <h2 id="keys">Keys</h2>
        <button type="button" aria-label="Close" title="Close ( Esc )" onClick={close}>×</button>
      </div>
      <dl>
        {KEYS.map(([keys, what]) => (
          <div key={what}><dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{what}</dd></div>
        ))}
      </dl>
      <p>The search takes a part of a name, a <code>/regular expression/</code>, <code>kind:kernel</code>, <code>binary:libc</code> or <code>package:std</code>.</p>
    </dialog>
  );
}
