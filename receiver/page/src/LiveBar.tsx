import { useSignal, useSignalEffect } from "@preact/signals";
import { address, following, lastSeconds, pause, showLast, SPANS } from "./live";
import { range, recording } from "./state";
import { seconds, whole } from "./words";

const SAID = {
  no: "",
  yes: "live",
  paused: "paused: new samples are kept",
  lost: "the profiler does not respond: retrying",
  ended: "the profiler has ended",
};

/** Whether the page follows what is profiled, and how much of it there is to see. */
export function LiveBar() {
  const { durationMs, live } = recording.value;
  const state = following.value;
  // Said aloud when it changes, not each second.
  const spoken = useSignal("");
  useSignalEffect(() => void (spoken.value = SAID[following.value]));
  if (!live) return null;
  return (
    <section class="live tools" aria-label="Live">
      <i class={`dot ${state}`} aria-hidden="true" />
      <span role="status">{spoken}</span>
      <span class="faint">
        the last {seconds(durationMs / 1e3)} are kept
        {live.forgotten > 0 && <>; <b>{whole(live.forgotten)}</b> older samples were dropped</>}
      </span>
      <span class="space" />
      <Served />
      <label>
        show{" "}
        <select value={String(lastSeconds.value)} onChange={(event) => showLast(+event.currentTarget.value)}>
          <option value="0">all of it</option>
          {SPANS.map((span) => <option key={span} value={String(span)}>the last {span < 60 ? `${span} s` : `${span / 60} min`}</option>)}
        </select>
      </label>
      <button type="button" title="Pause or resume ( p )" aria-pressed={state === "paused"} disabled={state === "ended"} onClick={pause}>
        {state === "paused" ? "Resume" : "Pause"}
      </button>
    </section>
  );
}

/** What the profiler itself can write of the time that is shown, of all threads. */
function Served() {
  const { from, to } = range.value ?? { from: 0, to: recording.value.slices };
  return (
    <span class="menu">
      {[".otlp", ".pb.gz", ".html"].map((suffix) => {
        const link = address(suffix, from, to);
        return link && <a key={suffix} class="button" href={link} download={`profile${suffix}`} title="The time range shown, for all threads">Save {suffix}</a>;
      })}
    </span>
  );
}
