import type { Recording } from "./recording";
import { type Selection, wanted } from "./select";

/** What a line of a function costs, in events. */
export interface LineCost {
  /** Of samples that were taken at this line itself. */
  own: number;
  /** Of samples that were taken at this line or in what it calls; recursion counts once. */
  total: number;
  /** Of `total`, what is in calls that were inlined at this line, by function. */
  inlined: Map<number, number>;
}

/** The lines of one file that a function has. Line 0 is for what has no line. */
export interface FileCosts {
  path: string;
  lines: Map<number, LineCost>;
}

/** What the lines of a function cost within a selection, by file, and the events of the whole selection. */
export interface FunctionCosts {
  files: FileCosts[];
  events: number;
}

/** Adds up the lines of a function: linear in the samples, and in the depths of the distinct stacks that they have. */
export function costsOf(recording: Recording, selection: Selection, label: number): FunctionCosts {
  const { lines, places, functions } = recording;
  const eventsOf = eventsOfLeaves(recording, selection);
  const files = new Map<string, FileCosts>();
  const costOf = (place: number): LineCost => {
    const path = places.path.get(place) ?? functions.path[label];
    let file = files.get(path);
    if (!file) files.set(path, (file = { path, lines: new Map() }));
    let cost = file.lines.get(places.line[place]);
    if (!cost) file.lines.set(places.line[place], (cost = { own: 0, total: 0, inlined: new Map() }));
    return cost;
  };
  for (const [leaf, events] of eventsOf) {
    const counted = new Set<LineCost>();
    for (let node = leaf, callee = -1; node >= 0; callee = node, node = lines.parent[node]) {
      const place = lines.place[node];
      if (places.function[place] !== label) continue;
      const cost = costOf(place);
      if (callee < 0) cost.own += events;
      if (counted.has(cost)) continue;
      counted.add(cost);
      cost.total += events;
      const called = callee < 0 ? -1 : lines.place[callee];
      if (called < 0 || places.isInlined[called] === 0) continue;
      const inlined = places.function[called];
      cost.inlined.set(inlined, (cost.inlined.get(inlined) ?? 0) + events);
    }
  }
  const totalOf = ({ lines }: FileCosts) => [...lines.values()].reduce((sum, { total }) => sum + total, 0);
  return { files: [...files.values()].sort((a, b) => totalOf(b) - totalOf(a)), events: sumOf(eventsOf) };
}

/** The events of a selection. */
export function eventsIn(recording: Recording, selection: Selection): number {
  return sumOf(eventsOfLeaves(recording, selection));
}

function sumOf(eventsOf: Map<number, number>): number {
  let sum = 0;
  for (const events of eventsOf.values()) sum += events;
  return sum;
}

/** The events of a selection by the node at which each stack ends, as the document numbers them. */
function eventsOfLeaves(recording: Recording, selection: Selection): Map<number, number> {
  const { samples } = recording;
  const { range } = selection;
  const isWanted = wanted(recording, selection);
  const eventsOf = new Map<number, number>();
  for (let row = 0; row < samples.count; row++) {
    const events = (range ? recording.within(row, range) : 1) * samples.events[row];
    if (events === 0 || !isWanted(row)) continue;
    eventsOf.set(samples.leaf[row], (eventsOf.get(samples.leaf[row]) ?? 0) + events);
  }
  return eventsOf;
}
