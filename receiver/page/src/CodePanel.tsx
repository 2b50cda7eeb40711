import { useEffect, useRef } from "preact/hooks";
import { AssemblyTable } from "./AssemblyTable";
import { SourceTable } from "./SourceTable";
import { codeForm, codeOf, colourOf, nameOf, recording } from "./state";
import { cut } from "./words";

/** The source or the assembly of a function, with what each line or instruction costs. */
export function CodePanel() {
  const panel = useRef<HTMLElement>(null);
  const label = codeOf.value;
  useEffect(() => {
    if (label !== null) panel.current?.scrollIntoView({ block: "nearest" });
  }, [label]);
  if (label === null) return null;
  const { binary } = recording.value.functions;
  return (
    <section class="card" aria-label="Code" ref={panel}>
      <div class="tools">
        <i class="swatch" style={{ background: colourOf(label) }} />
        <b class="mono">{cut(nameOf(label), 160)}</b>
        <span class="faint">{binary[label]}</span>
        <span class="space" />
        <div class="tabs" role="group" aria-label="Form of the code">
          {(["source", "assembly"] as const).map((form) => (
            <button key={form} type="button" aria-pressed={codeForm.value === form} onClick={() => (codeForm.value = form)}>
              {form === "source" ? "Source" : "Assembly"}
            </button>
          ))}
        </div>
        <button type="button" aria-label="Close the code" title="Close ( Esc )" onClick={() => (codeOf.value = null)}>×</button>
      </div>
      {codeForm.value === "source" ? <SourceTable label={label} /> : <AssemblyTable label={label} />}
    </section>
  );
}
