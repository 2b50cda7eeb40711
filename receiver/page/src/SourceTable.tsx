import { costs, sourcesOf } from "./code";
import { amountOf, Cost, Note, useHottestInSight } from "./codeParts";
import type { SourceFile } from "./document";
import type { FileCosts, LineCost } from "./lines";
import { hottest, rowsOf, type SourceRow } from "./sourceRows";
import { codeOf, nameOf, recording } from "./state";
import { share } from "./tree";
import { cut, percent } from "./words";

/** More inlined functions than these are not named beside a line. */
const INLINED_MAX = 3;

/** The lines of a function, with what each costs. */
export function SourceTable({ label }: { label: number }) {
  const { files, events } = costs.value!;
  const known = files.filter(({ path, lines }) => path !== "" || [...lines.keys()].some((line) => line > 0));
  if (files.length === 0) return <Note>None of the selected samples contains this function.</Note>;
  if (known.length === 0) {
    return <Note>No lines are known for this function: its binary has no debug information, or was not found.</Note>;
  }
  const sources = sourcesOf(label);
  return (
    <>
      {sources !== undefined && typeof sources === "string" && <Note>{sources}</Note>}
      {known.map((file) => {
        const text = typeof sources === "object" ? sources.find(({ path }) => path === file.path) : undefined;
        return <File key={file.path} costs={file} text={text} events={events} isAsked={sources === undefined} />;
      })}
    </>
  );
}

function File({ costs, text, events, isAsked }: { costs: FileCosts; text: SourceFile | undefined; events: number; isAsked: boolean }) {
  const rows = rowsOf(costs, text);
  const best = hottest(rows);
  const hasText = text !== undefined;
  const scroll = useHottestInSight(hasText);
  return (
    <>
      <h2 class="path">{cut(costs.path) || "[no file]"}</h2>
      {!hasText && !isAsked && (
        <Note>
          The text of this file is not here: <code>--source-path DIR</code> with <code>record</code> or <code>view</code> looks for it below a directory.
        </Note>
      )}
      <div class="list code" ref={scroll} tabIndex={0} role="group" aria-label={`Lines of ${cut(costs.path)}`}>
        <table>
          <thead>
            <tr><th class="number" scope="col">self</th><th class="number" scope="col">total</th><th class="line" scope="col">line</th><th scope="col">{hasText ? "source" : "inlined calls"}</th></tr>
          </thead>
          <tbody>
            {rows.map((row, at) => <Line key={row.line} row={row} events={events} isHottest={at === best} />)}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Line({ row, events, isHottest }: { row: SourceRow; events: number; isHottest: boolean }) {
  const { line, text, cost, isAfterGap } = row;
  const kind = [isHottest && "hottest", isAfterGap && "gap", !cost && "cold"].filter(Boolean).join(" ");
  return (
    <tr class={kind}>
      <Cost events={cost?.own ?? 0} of={events} />
      <Cost events={cost?.total ?? 0} of={events} />
      <td class="line">{line > 0 ? line : "?"}</td>
      <td class="text">
        {text !== undefined && <code>{text}</code>}
        {cost && <Inlined cost={cost} events={events} />}
      </td>
    </tr>
  );
}

/** The calls that were inlined at a line, those that cost most first. */
function Inlined({ cost, events }: { cost: LineCost; events: number }) {
  const calls = [...cost.inlined].sort((a, b) => b[1] - a[1]);
  if (calls.length === 0) return null;
  const name = (label: number) => cut(recording.value.functions.name[label] ?? "", 1000);
  return (
    <span class="inlined">
      {calls.slice(0, INLINED_MAX).map(([label, here]) => (
        <span key={label} title={`${name(label)}: ${amountOf(here)}, inlined at this line`}>
          {" "}↳ <button type="button" onClick={() => (codeOf.value = label)}>{cut(nameOf(label), 80)}</button> {percent(share(here, events))}
        </span>
      ))}
      {calls.length > INLINED_MAX && ` and ${calls.length - INLINED_MAX} more`}
    </span>
  );
}
