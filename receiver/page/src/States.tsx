import { computed } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { moveBeside } from "./beside";
import { placesOfStates, STATES, timesOfStates } from "./heat";
import type { Range } from "./select";
import { range, recording, states, threads } from "./state";
import { share } from "./tree";
import { cut, percent, seconds } from "./words";

/** A place of the timeline: a stretch of time of a thread, `null`: of all; and where that is in the window. */
export interface StatePlace {
  thread: number | null;
  range: Range;
  x: number;
  y: number;
}

const times = computed(() => timesOfStates(recording.value, range.value, threads.value));

/** What to call the cause of a wait. */
const CAUSES: Record<string, string> = { none: "no system call", other: "another system call" };
const causeName = (cause: string) => cut(CAUSES[cause] ?? cause.replaceAll("_", " "), 60);

/** The states and the causes of waits, with their shares of the selected time and threads; each selects what it is of. */
export function StateLegend() {
  const { state, cause } = recording.value.states;
  const placeOf = placesOfStates(recording.value);
  const numbersOf = (isOne: (number: number) => boolean) => [...state.keys()].map((index) => index + 1).filter(isOne);
  const causes = [...new Set(cause.filter(Boolean))].map((name) => {
    const numbers = numbersOf((number) => cause[number - 1] === name);
    return { name, numbers, time: timeOf(numbers) };
  });
  causes.sort((a, b) => b.time - a.time);
  return (
    <div class="tools states">
      <ul class="legend" aria-label="States">
        {STATES.map((name, place) => {
          const numbers = numbersOf((number) => placeOf[number] === place);
          return name && numbers.length > 0 && (
            <Choice key={name} name={name} numbers={numbers}><i class="swatch" style={{ background: `var(--${name})` }} /></Choice>
          );
        })}
      </ul>
      <span class="faint">waits for</span>
      <ul class="legend" aria-label="What threads wait for">
        {causes.map(({ name, numbers }) => <Choice key={name} name={causeName(name)} numbers={numbers} />)}
      </ul>
      {states.value && <button type="button" onClick={() => (states.value = null)}>Show all states</button>}
    </div>
  );
}

const timeOf = (numbers: number[]) => numbers.reduce((sum, number) => sum + times.value[number], 0);

function Choice({ name, numbers, children }: { name: string; numbers: number[]; children?: preact.ComponentChildren }) {
  const isChosen = states.value !== null && numbers.every((number) => states.value!.has(number));
  const toggle = () => {
    const next = new Set(states.value);
    for (const number of numbers) if (isChosen) next.delete(number); else next.add(number);
    states.value = next.size > 0 ? next : null;
  };
  const all = times.value.reduce((sum, time) => sum + time, 0);
  return (
    <li>
      <button type="button" aria-pressed={isChosen} title={recording.value.time(timeOf(numbers))} onClick={toggle}>
        {children}{name} {percent(share(timeOf(numbers), all))}
      </button>
    </li>
  );
}

/** What a thread did in a stretch of time. */
export function StateTip({ place }: { place: StatePlace }) {
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => moveBeside(element.current!, place), [place]);
  const { states: known, slices, sliceMs, durationMs } = recording.value;
  const here = timesOfStates(recording.value, place.range, place.thread === null ? null : new Set([place.thread]));
  const sum = here.reduce((sum, time) => sum + time, 0);
  const rows = [...here.keys()].filter((number) => here[number] > 0).sort((a, b) => here[b] - here[a]);
  const at = (slice: number) => seconds(((slice / slices) * Math.max(durationMs, slices * sliceMs)) / 1e3);
  const name = (number: number) => {
    const [state, cause] = [known.state[number - 1], known.cause[number - 1]];
    return [state ? cut(state, 60) : "unknown", cause && causeName(cause)].filter(Boolean).join(": ");
  };
  const colour = (number: number) => STATES[placesOfStates(recording.value)[number]];
  return (
    <div class="tip" role="tooltip" ref={element}>
      <b>{place.thread === null ? "all threads" : cut(recording.value.threadName(place.thread), 120)}</b>
      <div class="where">{at(place.range.from)} – {at(place.range.to)}</div>
      <table>
        <tbody>
          {rows.slice(0, 8).map((number) => (
            <tr key={number}>
              <th><i class="swatch" style={{ background: `var(--${colour(number) || "heat"})` }} />{name(number)}</th>
              <td>{percent(share(here[number], sum))}</td><td>{recording.value.time(here[number])}</td>
            </tr>
          ))}
          {rows.length === 0 && <tr><th>nothing was sampled</th></tr>}
        </tbody>
      </table>
    </div>
  );
}
