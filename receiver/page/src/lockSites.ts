import type { Recording } from "./recording";

/** What can't be the function that wants a lock, by the label of its kind. */
const NO_SITES = ["kernel", "lock", "truncated or missing"];

/** By the label of each lock: the function that waits for it the most, which is no function that locks. A lock is only a number. */
export function lockSites({ functions, kinds, tree, samples }: Recording): ReadonlyMap<number, number> {
  const lock = kinds.findIndex(({ label }) => label === "lock");
  const sites = new Map<number, number>();
  if (!functions.kind.includes(lock)) return sites;
  const isSite = functions.name.map((_, label) => !NO_SITES.includes(kinds[functions.kind[label]].label) && functions.isStandard[label] === 0);
  const events = new Map<number, Map<number, number>>();
  for (let row = 0; row < samples.count; row++) {
    const leaf = samples.node[row];
    if (leaf === 0 || functions.kind[tree.label[leaf]] !== lock) continue;
    let node = tree.parent[leaf];
    while (node > 0 && !isSite[tree.label[node]]) node = tree.parent[node];
    if (node <= 0) continue;
    const ofLock = events.get(tree.label[leaf]) ?? new Map<number, number>();
    events.set(tree.label[leaf], ofLock.set(tree.label[node], (ofLock.get(tree.label[node]) ?? 0) + samples.events[row]));
  }
  for (const [label, ofLock] of events) {
    sites.set(label, [...ofLock].reduce((most, site) => (site[1] > most[1] ? site : most))[0]);
  }
  return sites;
}
