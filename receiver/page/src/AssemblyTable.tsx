import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { assemblyOf, sourcesOf } from "./code";
import { Cost, Note, useHottestInSight } from "./codeParts";
import type { Assembly } from "./document";
import { type AssemblyRow, assemblyRows, costsOfInstructions } from "./instructions";
import { eventsIn } from "./lines";
import { textsOf } from "./sourceRows";
import { recording, selection } from "./state";
import { cut } from "./words";

/** The instructions of a function, with what each costs, the lines that they are of, and how stacks are unwound there. */
export function AssemblyTable({ label }: { label: number }) {
  const assembly = assemblyOf(label);
  if (assembly === undefined) return <Note>Reading the binary …</Note>;
  if (typeof assembly === "string") return <Note>{assembly}</Note>;
  return <Instructions label={label} assembly={assembly} />;
}

/** What is known of the text of source lines. */
function useTexts(label: number): (path: string, line: number) => string | undefined {
  const sources = sourcesOf(label);
  return useMemo(() => {
    const texts = new Map<string, Map<number, string>>();
    for (const source of typeof sources === "object" ? sources : []) texts.set(source.path, textsOf(source));
    return (path: string, line: number) => texts.get(path)?.get(line);
  }, [sources]);
}

/**
 * What is selected, without the end of a live recording that lacks samples: costs that were fetched since have them, and would be a
 * share of less than they are in.
 */
const completeSelection = computed(() => {
  const { completeSlices, slices } = recording.value;
  if (completeSlices === slices) return selection.value;
  const { from, to } = selection.value.range ?? { from: 0, to: slices };
  return { ...selection.value, range: { from, to: Math.min(to, completeSlices) } };
});

const completeEvents = computed(() => eventsIn(recording.value, completeSelection.value));

const hex = (address: number) => address.toString(16);

function Instructions({ label, assembly }: { label: number; assembly: Assembly }) {
  const scroll = useHottestInSight();
  const textOf = useTexts(label);
  const costs = costsOfInstructions(recording.value, completeSelection.value, assembly);
  const rows = assemblyRows(assembly, costs.total, textOf);
  const best = costs.own.reduce((best, own, at) => (own > costs.own[best] ? at : best), 0);
  const { path, build_id, blocks } = assembly;
  const isInlined = blocks.every(({ symbol }) => symbol !== assembly.name);
  return (
    <>
      <p class="path">
        {cut(path)}{build_id && ` · build ID ${cut(build_id, 80)}`}
        {blocks.map(({ symbol, start, end }) => <span key={start}> · {isInlined && "in "}<b>{cut(symbol, 120)}</b> {hex(start)}–{hex(end)}</span>)}
      </p>
      <div class="list code" ref={scroll} tabIndex={0} role="group" aria-label="Instructions">
        <table>
          <thead>
            <tr><th class="number" scope="col">self</th><th class="number" scope="col">total</th><th class="address" scope="col">address</th><th scope="col">instruction</th></tr>
          </thead>
          <tbody>
            {rows.map((row) => <Row key={row.key} row={row} costs={costs} events={completeEvents.value} isHottest={row.instruction === best && costs.own[best] > 0} assembly={assembly} />)}
          </tbody>
        </table>
      </div>
    </>
  );
}

interface RowProps {
  row: AssemblyRow;
  costs: ReturnType<typeof costsOfInstructions>;
  /** Of everything that is selected. */
  events: number;
  isHottest: boolean;
  assembly: Assembly;
}

function Row({ row, costs, events, isHottest, assembly }: RowProps) {
  if (row.instruction < 0) {
    return <tr class={`head ${row.kind}`}><td colSpan={2} /><td colSpan={2}>{cut(row.text)}</td></tr>;
  }
  const at = row.instruction;
  return (
    <tr class={isHottest ? "hottest" : costs.total[at] > 0 ? "" : "cold"}>
      <Cost events={costs.own[at]} of={events} />
      <Cost events={costs.total[at]} of={events} />
      <td class="address">{hex(assembly.instructions.address[at])}</td>
      <td class="text"><code>{assembly.instructions.text[at]}</code></td>
    </tr>
  );
}
