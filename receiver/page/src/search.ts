import { packagesOf } from "./packages";
import type { Recording } from "./recording";
import { share, type View } from "./tree";

/**
 * Which labels a query finds: a part of a name; `/pattern/`, a regular expression; `kind:`, `binary:` or
 * `package:` with a part of those. `null`: there is no query.
 */
export function search(recording: Recording, view: View, query: string): Uint8Array | null {
  if (query === "") return null;
  const { name, short, binary, kind } = recording.functions;
  const found = new Uint8Array(name.length + view.groups.length);
  const [, field, rest] = /^(kind|binary|package):(.*)$/i.exec(query) ?? [];
  const isMatch = matcher(rest ?? query);
  const packages = field?.toLowerCase() === "package" ? packagesOf(recording) : [];
  const textOf = (label: number) => {
    switch (field?.toLowerCase()) {
      case "kind": return recording.kinds[kind[label]].label;
      case "binary": return binary[label];
      case "package": return packages[label];
      default: return name[label];
    }
  };
  for (let label = 0; label < name.length; label++) if (isMatch(textOf(label)) || (!field && isMatch(short[label]))) found[label] = 1;
  if (!field) view.groups.forEach((group, number) => (found[name.length + number] = isMatch(group) ? 1 : 0));
  return found;
}

function matcher(query: string): (text: string) => boolean {
  const [, pattern] = /^\/(.+)\/$/.exec(query) ?? [];
  if (pattern) {
    try {
      const expression = new RegExp(pattern, "i");
      return (text) => expression.test(text);
    } catch {
      // Half typed: taken as it stands.
    }
  }
  const part = query.toLowerCase();
  return (text) => text.toLowerCase().includes(part);
}

/** The share of events that have a match on their stack. */
export function matchedShare(view: View, found: Uint8Array): number {
  let events = 0;
  for (let node = 1; node < view.count;) {
    if (found[view.label[node]] === 1) {
      events += view.total[node];
      node = view.end[node]; // what lies below is counted already
    } else {
      node++;
    }
  }
  return share(events, view.events);
}
