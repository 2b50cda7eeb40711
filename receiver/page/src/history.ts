/** Parts of a link that change bit by bit, while somebody types or drags: each run of changes is one step back. */
const GRADUAL = new Set(["search", "time", "base"]);
/** Longer apart, two changes are two steps. */
const RUN_MS = 1000;

let lastChange = { keys: "", atMs: -Infinity };

/**
 * Puts what is shown into the address: as a new entry of the browser's history, so that Back returns to what was shown before, or in
 * place of the entry there is where nobody chose the change.
 */
export function keepInAddress(shown: string, isChosen: boolean) {
  if (`#${shown}` === location.hash) return;
  const keys = changedKeys(new URLSearchParams(location.hash.slice(1)), new URLSearchParams(shown));
  const isGradual = keys.every((key) => GRADUAL.has(key));
  const now = performance.now();
  const goesOn = isGradual && keys.join() === lastChange.keys && now - lastChange.atMs < RUN_MS;
  if (isChosen) lastChange = { keys: keys.join(), atMs: now };
  try {
    if (isChosen && !goesOn) history.pushState(null, "", `#${shown}`);
    else history.replaceState(null, "", `#${shown}`);
  } catch {
    // Some browsers forbid it for files, or so often.
  }
}

function changedKeys(before: URLSearchParams, now: URLSearchParams): string[] {
  const keys = [...new Set([...before.keys(), ...now.keys()])];
  return keys.filter((key) => before.getAll(key).join("\n") !== now.getAll(key).join("\n")).sort();
}
