import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { CodePanel } from "./CodePanel";
import { download, folded, svg } from "./download";
import { FlameGraph } from "./FlameGraph";
import { Lists } from "./FunctionTable";
import { pause } from "./live";
import { Keys } from "./Keys";
import { LiveBar } from "./LiveBar";
import { closeMenu, isMenuOpen, Menu } from "./Menu";
import { Outcomes } from "./Outcomes";
import { differenceColour } from "./palette";
import type { Colouring } from "./packages";
import type { Grouping } from "./select";
import * as state from "./state";
import { Timeline } from "./Timeline";
import type { Inlines } from "./inlines";
import { hideTip, Tip } from "./Tip";
import { Transforms } from "./Transforms";
import { ViewChoice } from "./ViewChoice";
import { cut, percent, seconds, whole } from "./words";

/** The whole page. */
export function App() {
  const search = useRef<HTMLInputElement>(null);
  const help = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
      // An open dialog closes by itself.
      if (event.key === "Escape" && !help.current?.open) {
        hideTip();
        if (isMenuOpen()) return closeMenu();
        const isSearching = event.target === search.current && state.query.value !== "";
        if (isTyping && !isSearching) (event.target as HTMLElement).blur();
        else state.escape();
      }
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const actions: Record<string, () => void> = {
        "/": () => search.current?.select(),
        i: () => (state.isIcicle.value = !state.isIcicle.value),
        c: () => (state.base.value ? (state.base.value = null) : state.compare()),
        n: toggleNames,
        p: pause,
        "?": () => help.current?.showModal(),
      };
      if (!actions[event.key]) return;
      event.preventDefault();
      actions[event.key]();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const { slices } = state.recording.value;
  return (
    <>
      <Header search={search} onHelp={() => help.current?.showModal()} />
      <main>
        <LiveBar />
        <Outcomes />
        {slices > 1 && <Timeline />}
        <Graph />
        <CodePanel />
        <Lists />
        <Menu />
      </main>
      <Tip />
      <Keys dialog={help} />
    </>
  );
}

/** Leaves out what was found. */
function dropMatches() {
  const { value: query } = state.query;
  state.query.value = "";
  state.addTransform({ kind: "drop", query });
}

function toggleNames() {
  state.wantsFullNames.value = !state.hasFullNames.value;
}

function Header({ search, onHelp }: { search: RefObject<HTMLInputElement | null>; onHelp(): void }) {
  const recording = state.recording.value;
  const { events, base } = state.view.value;
  const { durationMs, rateHz, start, measure } = recording;
  return (
    <header>
      <div class="what">
        <h1>{cut(recording.title, 300)}</h1>
        <p class="faint">
          {recording.isTime || recording.isOfUnit
            ? <><b>{recording.amount(events)}</b> of {recording.subject}</>
            : <><b>{whole(events)}</b> {recording.counted}{recording.periodNs > 0 && <> · {recording.time(events)} of {measure} time</>}</>}
          {base && <> · compared with <b>{recording.amount(base.events)}</b></>}
          {rateHz > 0 && <> · {whole(rateHz)} Hz</>}
          {durationMs > 0 && <> {recording.isOfCpus ? "for" : "in"} {seconds(durationMs / 1e3)}</>}
          {start.getTime() > 0 && <> · <time dateTime={start.toISOString()}>{start.toLocaleString()}</time></>}
        </p>
      </div>
      <ViewChoice />
      <search>
        <input
          ref={search}
          type="search"
          placeholder="Search functions ( / )"
          aria-label="Search functions"
          spellcheck={false}
          autocomplete="off"
          value={state.query.value}
          onInput={(event) => (state.query.value = event.currentTarget.value)}
        />
        <div class="found">
          {state.query.value !== "" && <button type="button" title="Remove all samples with a match on their stack" onClick={dropMatches}>Drop matches</button>}
          <output class="matched">{state.matched.value !== null && `${percent(state.matched.value)} match`}</output>
        </div>
      </search>
      <div class="menu">
        <select aria-label="Colours of the page" value={state.theme.value} onChange={(event) => (state.theme.value = event.currentTarget.value as typeof state.theme.value)}>
          <option value="system">as system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
        <button type="button" aria-pressed={state.hasFullNames.value} title="With template arguments, parameters and packages ( n )" onClick={toggleNames}>Full names</button>
        <button type="button" onClick={() => download("profile.folded", "text/plain", folded())}>Save .folded</button>
        <button type="button" onClick={() => download("profile.svg", "image/svg+xml", svg(state.zoomed.value))}>Save .svg</button>
        <button type="button" aria-label="Keys" title="Keys ( ? )" onClick={onHelp}>?</button>
      </div>
    </header>
  );
}

/** The flame graph of everything, or around one function. */
function Graph() {
  const { focused, isIcicle, view, zoomed, sides } = state;
  const focus = (label: number) => (focused.value = label);
  return (
    <section class="card" aria-label="Flame graph">
      <div class="tools">
        {focused.value === null ? <Path /> : <FocusedPath label={focused.value} />}
        <span class="space" />
        <Legend />
        {!state.view.value.base && <label>colour by <Colourings /></label>}
        <label>group by <Groupings /></label>
        {state.hasInlined.value && <label>inlined <InlinesChoice /></label>}
        {focused.value === null && (
          <button type="button" title="Turn the graph upside down ( i )" onClick={() => (isIcicle.value = !isIcicle.value)}>
            {isIcicle.value ? "Put root at bottom" : "Put root at top"}
          </button>
        )}
      </div>
      <Transforms />
      {sides.value && focused.value !== null ? (
        <>
          <h2 class="side">Callers</h2>
          <FlameGraph key="callers" label="Callers" view={sides.value.callers} zoomed={sides.value.callers.count > 1 ? 1 : 0} isIcicle={false} heightShare={0.32} onZoom={(node) => node > 1 && refocus(sides.value!.callers.label[node])} onFocus={focus} />
          <h2 class="side">Callees</h2>
          <FlameGraph key="callees" label="Callees" view={sides.value.callees} zoomed={sides.value.callees.count > 1 ? 1 : 0} isIcicle heightShare={0.32} onZoom={(node) => node > 1 && refocus(sides.value!.callees.label[node])} onFocus={focus} />
        </>
      ) : (
        <FlameGraph key="all" label="Flame graph" isWhole view={view.value} zoomed={zoomed.value} isIcicle={isIcicle.value} heightShare={0.62} onZoom={state.zoomTo} onFocus={focus} />
      )}
    </section>
  );
}

function Colourings() {
  return (
    <select value={state.colouring.value} onChange={(event) => (state.colouring.value = event.currentTarget.value as Colouring)}>
      {(["kind", "binary", "package"] as const).map((one) => <option key={one} value={one}>{one}</option>)}
    </select>
  );
}

const INLINES: [Inlines, string][] = [["all", "all"], ["own", "no standard library"], ["none", "none"]];

/** Which inlined functions are not folded into their callers. */
function InlinesChoice() {
  return (
    <select title="Which inlined functions to show; others are folded into their callers" value={state.inlines.value} onChange={(event) => state.showInlines(event.currentTarget.value as Inlines)}>
      {INLINES.map(([one, text]) => <option key={one} value={one}>{text}</option>)}
    </select>
  );
}

/** Groups have no callers. */
function refocus(label: number) {
  if (label < state.recording.value.functions.name.length) state.focused.value = label;
}

function Groupings() {
  const { spans, threads } = state.recording.value;
  const isThere = { trace: spans.span.length > 0, span: spans.span.length > 0, container: threads.container.some(Boolean) };
  const offered = state.GROUPINGS.filter((one) => isThere[one as keyof typeof isThere] ?? true);
  return (
    <select value={state.grouping.value} onChange={(event) => (state.grouping.value = event.currentTarget.value as Grouping)}>
      {offered.map((one) => <option key={one} value={one}>{one === "none" ? "nothing" : one}</option>)}
    </select>
  );
}

/** Where the flame graph is zoomed to. */
function Path() {
  const { view, zoomed } = state;
  const steps: number[] = [];
  for (let node = zoomed.value; node >= 0; node = view.value.parent[node]) steps.unshift(node);
  const isLong = steps.length > 5;
  const shown = isLong ? [steps[0], ...steps.slice(-3)] : steps;
  return (
    <nav aria-label="Zoomed to">
      {shown.map((node, position) => (
        <span key={node}>
          {position > 0 && (isLong && position === 1 ? "› … ›" : "›")}
          <button type="button" onClick={() => state.zoomTo(node)} aria-current={node === zoomed.value ? "location" : undefined}>
            {node === 0 ? "all" : cut(state.nameOf(view.value.label[node]), 120)}
          </button>
        </span>
      ))}
    </nav>
  );
}

function FocusedPath({ label }: { label: number }) {
  return (
    <nav aria-label="Around one function">
      <button type="button" onClick={() => (state.focused.value = null)}>‹ Flame graph</button>
      <b class="mono">{cut(state.nameOf(label), 160)}</b>
      <button type="button" title="The cost of each line and instruction ( l )" onClick={() => state.showCode(label)}>Source</button>
    </nav>
  );
}

function Legend() {
  const { kinds, functions } = state.recording.value;
  if (state.view.value.base) {
    return (
      <ul class="legend" aria-label="Colours">
        {([["less", -1], ["same", 0], ["more", 1]] as const).map(([text, change]) =>
          <li key={text} title={change === 0 && state.recording.value.isOfCpus ? "or no more different than chance explains" : undefined}><i class="swatch" style={{ background: differenceColour(change) }} />{text}</li>)}
      </ul>
    );
  }
  const groups = state.colourGroups.value;
  const occurring = new Set(functions.kind);
  const shown = groups?.legend ?? kinds.filter((_, kind) => occurring.has(kind)).map(({ label, colour }) => ({ label, colour: `rgb(${colour.join(",")})` }));
  const query = (label: string) => `${state.colouring.value}:${label}`;
  const search = (label: string) => (state.query.value = state.query.value === query(label) ? "" : query(label));
  return (
    <ul class="legend" aria-label="Colours">
      {shown.map(({ label, colour }) => (
        <li key={label}>
          <button type="button" aria-pressed={state.query.value === query(label)} disabled={groups !== null && label === "others"} title="Show where it is" onClick={() => search(label)}>
            <i class="swatch" style={{ background: colour }} />{cut(label, 30)}
          </button>
        </li>
      ))}
    </ul>
  );
}
