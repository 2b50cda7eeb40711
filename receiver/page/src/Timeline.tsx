import { computed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { type Columns, heatOf, slicesOf, STATES, sumAt } from "./heat";
import { base, brushes, compare, isDark, isPerSecond, range, recording, states, threads } from "./state";
import { StateLegend, StateTip, type StatePlace } from "./States";
import type { Range } from "./select";
import { cut, seconds, whole } from "./words";

const SUM_PX = 44;
const ROW_PX = 18;
const FEW = 8;

const heat = computed(() => heatOf(recording.value, states.value));

/** What each thread did over time, to brush. */
export function Timeline() {
  const { slices, sliceMs, durationMs, isOfCpus, parts, subject } = recording.value;
  const areAllShown = useSignal(false);
  const { threads: sorted, most, columns } = heat.value;
  const shown = areAllShown.value ? sorted : sorted.slice(0, FEW);
  const spanMs = Math.max(durationMs, slices * sliceMs);
  return (
    <section class="card timeline" aria-label={`${subject} over time`}>
      <div class="strip">
        <div class="names">
          <div class="sum" style={{ height: `${SUM_PX}px` }} title={isOfCpus ? undefined : `in ${seconds(spanMs / columns / 1e3)}`}>all threads{sliceMs > 0 && <small>up to {isOfCpus ? `${most.toFixed(1)} CPUs` : recording.value.amount(most)}</small>}</div>
          {shown.map((thread) => <ThreadName key={thread} thread={thread} />)}
        </div>
        <Strip shown={shown} spanMs={spanMs} />
      </div>
      {recording.value.isOfStates && <StateLegend />}
      <div class="tools">
        {sorted.length > FEW && (
          <button type="button" onClick={() => (areAllShown.value = !areAllShown.value)}>
            {areAllShown.value ? "Fewer threads" : `All ${whole(sorted.length)} threads`}
          </button>
        )}
        {threads.value && <button type="button" onClick={() => (threads.value = null)}>Show all threads</button>}
        <span class="space" />
        {sliceMs > 0 && base.value && <Basis />}
        {base.value === "rest" && <span class="limits base">before: <b>the rest of the time</b></span>}
        {sliceMs > 0 && base.value && base.value !== "rest" && <Limits what="before" limits={base} spanMs={spanMs} />}
        {sliceMs > 0 && <Limits what={base.value ? "now" : "time"} limits={range} spanMs={spanMs} />}
        {base.value
          ? <button type="button" onClick={() => { base.value = null; brushes.value = "range"; }}>Stop comparing</button>
          : <button type="button" title="( c )" onClick={compare}>{range.value && parts.length < 2 ? "Compare with the rest" : "Compare"}</button>}
      </div>
    </section>
  );
}

/** By what both sides are compared. */
function Basis() {
  return (
    <label>
      compare{" "}
      <select value={isPerSecond.value ? "second" : "share"} onChange={(event) => (isPerSecond.value = event.currentTarget.value === "second")}>
        <option value="share">shares of all {recording.value.isTime ? "time" : recording.value.counted}</option>
        <option value="second">{recording.value.isTime || recording.value.isOfCpus ? "time" : recording.value.counted} per second</option>
      </select>
    </label>
  );
}

function ThreadName({ thread }: { thread: number }) {
  const chosen = threads.value?.has(thread) ?? false;
  const toggle = () => {
    const next = new Set(threads.value);
    if (!next.delete(thread)) next.add(thread);
    threads.value = next.size > 0 ? next : null;
  };
  const title = `${recording.value.processName(thread)} / ${recording.value.threadName(thread)}`;
  return (
    <button type="button" class="thread" aria-pressed={chosen} title={cut(title)} onClick={toggle}>
      {cut(recording.value.threadName(thread), 80)}
    </button>
  );
}

/** The ends of a range in seconds, to type; with what chooses whether brushing sets it. */
function Limits({ what, limits, spanMs }: { what: string; limits: typeof range | typeof base; spanMs: number }) {
  const { slices } = recording.value;
  const seconds = (slice: number) => ((slice / slices) * spanMs) / 1e3;
  const { from, to } = limits.value && limits.value !== "rest" ? limits.value : { from: 0, to: slices };
  const side = limits === base ? "base" : "range";
  // An end that is moved past the other one moves that too.
  const setFrom = (slice: number) => {
    const next = Math.max(0, Math.min(slice, slices - 1));
    limits.value = { from: next, to: to > next ? to : slices };
  };
  const setTo = (slice: number) => {
    const next = Math.max(1, Math.min(slice, slices));
    limits.value = { from: from < next ? from : 0, to: next };
  };
  const end = (name: string, value: number, set: (slice: number) => void) => (
    <End name={`${what}: ${name}, in seconds`} value={value} spanMs={spanMs} change={(seconds) => set(Math.round((seconds * 1e3 * slices) / spanMs))} />
  );
  return (
    <span class={`limits ${side}`}>
      {base.value && base.value !== "rest"
        ? <button type="button" aria-pressed={brushes.value === side} title="Dragging sets this range" onClick={() => (brushes.value = side)}>{what}</button>
        : <span>{what}</span>}
      {end("from", seconds(from), setFrom)}
      –
      {end("to", seconds(to), setTo)} s
      {limits.value && !base.value && <button type="button" aria-label="All of the time" title="All of the time" onClick={() => (limits.value = null)}>×</button>}
    </span>
  );
}

/** One end of a range. What is being typed stays there when more data arrives meanwhile. */
function End({ name, value, spanMs, change }: { name: string; value: number; spanMs: number; change: (seconds: number) => void }) {
  const typed = useSignal<string | null>(null);
  const step = Math.max(0.001, +(spanMs / 1e5).toPrecision(1));
  const finish = (text: string) => {
    typed.value = null;
    change(+text);
  };
  return (
    <input type="number" min="0" max={(spanMs / 1e3).toFixed(3)} step={step} value={typed.value ?? value.toFixed(3)} aria-label={name}
      onInput={(event) => (typed.value = event.currentTarget.value)}
      onChange={(event) => finish(event.currentTarget.value)}
      onBlur={() => (typed.value = null)} />
  );
}

function Strip({ shown, spanMs }: { shown: number[]; spanMs: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const began = useRef<number | null>(null);
  const widthPx = useSignal(0);
  const pointed = useSignal<StatePlace | null>(null);
  const heightPx = SUM_PX + shown.length * ROW_PX;
  const { slices, parts, isOfStates } = recording.value;

  useEffect(() => {
    const element = box.current!;
    const observer = new ResizeObserver(() => (widthPx.value = element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const pen = canvas.current!.getContext("2d")!;
    const ratio = devicePixelRatio || 1;
    canvas.current!.width = Math.round(widthPx.value * ratio);
    canvas.current!.height = Math.round(heightPx * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(pen, widthPx.value, shown);
  }, [widthPx.value, shown, heat.value, isDark.value, threads.value]);

  const sliceAt = (event: PointerEvent) => {
    const { left, width } = box.current!.getBoundingClientRect();
    return Math.max(0, Math.min(slices, Math.round(((event.clientX - left) / width) * slices)));
  };
  const point = (event: PointerEvent) => {
    const { left, top, width } = box.current!.getBoundingClientRect();
    const { columns } = heat.value;
    const column = Math.max(0, Math.min(columns - 1, Math.floor(((event.clientX - left) / width) * columns)));
    const row = Math.floor((event.clientY - top - SUM_PX) / ROW_PX);
    if (!isOfStates || row >= shown.length) pointed.value = null;
    else pointed.value = { thread: row < 0 ? null : shown[row], range: slicesOf(column, heat.value, recording.value), x: event.clientX, y: event.clientY };
  };
  const target = (event: PointerEvent) => (base.value && base.value !== "rest" && (brushes.value === "base" || event.shiftKey) ? base : range);
  const brush = (event: PointerEvent) => {
    if (began.current === null) return;
    const at = sliceAt(event);
    if (at !== began.current) target(event).value = { from: Math.min(at, began.current), to: Math.max(at, began.current) };
  };
  return (
    <div
      class="heat"
      ref={box}
      onPointerDown={(event) => { if (event.button === 0) { began.current = sliceAt(event); box.current!.setPointerCapture(event.pointerId); } }}
      onPointerMove={(event) => { brush(event); point(event); }}
      onPointerLeave={() => (pointed.value = null)}
      onPointerUp={(event) => {
        if (began.current === sliceAt(event) && !base.value) range.value = null;
        began.current = null;
      }}
    >
      <canvas ref={canvas} style={{ width: "100%", height: `${heightPx}px` }} role="img" aria-label={`${recording.value.subject} of each thread over time: ${isOfStates ? "by colour what it did" : "darker is more"}. The fields below set the range of time.`} />
      {pointed.value && <StateTip place={pointed.value} />}
      {parts.map((part) => <span key={part.name} class="part" style={{ left: `${(100 * part.from) / slices}%` }}>{cut(part.name, 60)}</span>)}
      {range.value && <Shade limits={range.value} kind="range" />}
      {comparedWith(base.value).map((limits) => <Shade key={limits.from} limits={limits} kind="base" />)}
      {spanMs > 0 && <div class="axis" aria-hidden="true">{[0, 0.25, 0.5, 0.75, 1].map((at) => <span key={at}>{seconds((at * spanMs) / 1e3)}</span>)}</div>}
    </div>
  );
}

/** The stretches of time that are compared with. */
function comparedWith(limits: typeof base.value): Range[] {
  if (limits !== "rest") return limits ? [limits] : [];
  const { from, to } = range.value ?? { from: 0, to: recording.value.slices };
  return [{ from: 0, to: from }, { from: to, to: recording.value.slices }].filter(({ from, to }) => from < to);
}

function Shade({ limits, kind }: { limits: Range; kind: string }) {
  const { slices } = recording.value;
  const percentOf = (slice: number) => `${(100 * slice) / slices}%`;
  return <div class={`shade ${kind}`} style={{ left: percentOf(limits.from), width: percentOf(limits.to - limits.from) }} />;
}

function paint(pen: CanvasRenderingContext2D, widthPx: number, shown: number[]) {
  const style = getComputedStyle(document.documentElement);
  pen.clearRect(0, 0, widthPx, SUM_PX + shown.length * ROW_PX);
  const { columns, all, most, rows, threads: sorted } = heat.value;
  const { isOfStates } = recording.value;
  const colours = STATES.map((state) => style.getPropertyValue(state ? `--${state}` : "--heat"));
  const x = (column: number) => Math.floor((column * widthPx) / columns);
  /** Draws the states of a column on top of each other, from `bottom` up. */
  const stack = (of: Columns, column: number, bottom: number, pxOfOne: number) => {
    let y = bottom;
    of.forEach((ofState, place) => {
      const height = ofState ? ofState[column] * pxOfOne : 0;
      pen.fillStyle = colours[place];
      pen.fillRect(x(column), y - height, x(column + 1) - x(column), height);
      y -= height;
    });
  };
  pen.globalAlpha = isOfStates ? 1 : 0.75;
  for (let column = 0; column < columns; column++) {
    stack(all, column, SUM_PX - 2, most > 0 ? (SUM_PX - 6) / most : 0);
  }
  shown.forEach((thread, position) => {
    const of = rows[sorted.indexOf(thread)];
    const isOut = threads.value !== null && !threads.value.has(thread);
    const top = SUM_PX + position * ROW_PX;
    for (let column = 0; column < columns; column++) {
      const sum = sumAt(of, column);
      const isFilled = sum > 0 && !isOfStates;
      // What ran at all can be seen.
      pen.globalAlpha = (isFilled ? 0.12 + 0.88 * Math.min(1, sum) : 0.04) * (isOut ? 0.35 : 1);
      pen.fillStyle = colours[0];
      pen.fillRect(x(column), top, x(column + 1) - x(column), ROW_PX - 2);
      if (!isOfStates) continue;
      pen.globalAlpha = isOut ? 0.35 : 1;
      // Waits that were not all sampled count for others, too: by chance for more than there was time.
      stack(of, column, top + ROW_PX - 2, (ROW_PX - 2) / Math.max(1, sum));
    }
  });
  pen.globalAlpha = 1;
}
