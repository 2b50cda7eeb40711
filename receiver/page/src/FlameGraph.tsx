import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import * as flame from "./flame";
import { colourOf, colourOfNode, found, hasFullNames, isDark, nameOf, recording, showCode } from "./state";
import { openMenu } from "./Menu";
import { hideTip, renewTip, showTip } from "./Tip";
import { nodeAt, pathTo, share, type View } from "./tree";
import { cut, percent } from "./words";

interface Props {
  label: string;
  view: View;
  zoomed: number;
  isIcicle: boolean;
  /** Whether it is of the whole tree, and not of a part around one function. */
  isWhole?: boolean;
  /** Of the window's height, what it takes at most. */
  heightShare: number;
  onZoom(node: number): void;
  /** The function of a node is to be looked at by itself. */
  onFocus(label: number): void;
}

/** A flame graph on a canvas that shows what of it is scrolled to. */
export function FlameGraph(props: Props) {
  const { view, zoomed, isIcicle } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroll = useRef<HTMLDivElement>(null);
  const selected = useRef(zoomed);
  const hovered = useRef(-1);
  const size = useSignal({ widthPx: 0, windowPx: 0 });
  const spoken = useSignal("");

  const { widthPx, windowPx } = size.value;
  const rows = widthPx > 0 ? flame.rowsOf(view, zoomed, widthPx) : 1;
  const wholePx = rows * flame.ROW_PX;
  const heightPx = Math.min(wholePx, Math.max(Math.round(windowPx * props.heightShare), 5 * flame.ROW_PX));
  const farthestPx = wholePx - heightPx;
  /** The distance that is scrolled from the root's row, at the top or at the bottom: it stays when rows come and go. */
  const fromRootPx = useRef(0);
  const turned = (px: number) => (isIcicle ? px : farthestPx - px);
  const look = (): flame.Look => ({
    view, zoomed, isIcicle, widthPx, rows, heightPx, nameOf,
    topPx: Math.max(0, Math.min(scroll.current!.scrollTop, farthestPx)),
    colourOf: (node) => colourOfNode(view, node),
    found: found.value,
    theme: flame.themeOf(isDark.value),
  });

  function scrollFromRoot(px: number) {
    fromRootPx.current = Math.max(0, Math.min(px, farthestPx));
    scroll.current!.scrollTop = turned(fromRootPx.current);
  }

  function draw() {
    const pen = canvas.current?.getContext("2d");
    if (!pen || widthPx === 0) return;
    const ratio = devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    flame.paint(pen, look(), document.activeElement === canvas.current ? [selected.current, hovered.current] : [hovered.current]);
  }

  useEffect(() => {
    const element = scroll.current!;
    const measure = () => {
      size.value = { widthPx: Math.max(element.clientWidth, 50), windowPx: innerHeight };
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    addEventListener("resize", measure);
    measure();
    return () => {
      observer.disconnect();
      removeEventListener("resize", measure);
    };
  }, []);

  useLayoutEffect(() => {
    if (!canvas.current || widthPx === 0) return;
    const ratio = devicePixelRatio || 1;
    canvas.current.width = Math.round(widthPx * ratio);
    canvas.current.height = Math.round(heightPx * ratio);
    canvas.current.style.width = `${widthPx}px`;
    canvas.current.style.height = `${heightPx}px`;
    scrollFromRoot(fromRootPx.current);
    draw();
  }, [view, zoomed, isIcicle, found.value, isDark.value, size.value, colourOf, hasFullNames.value]);

  // Another view has other nodes. Of one that is only newer, what was looked at is still looked at.
  const before = useRef({ recording: recording.value, view, zoomed, isIcicle });
  useLayoutEffect(() => {
    const last = before.current;
    before.current = { recording: recording.value, view, zoomed, isIcicle };
    const isSameView = last.recording.views.shown === recording.value.views.shown;
    const isNewer = last.recording !== recording.value && isSameView && last.isIcicle === isIcicle;
    if (isNewer) {
      selected.current = nodeAt(view, pathTo(last.view, selected.current));
      hovered.current = hovered.current < 0 ? -1 : nodeAt(view, pathTo(last.view, hovered.current));
      renewTip(last.view, view);
      draw();
      return;
    }
    selected.current = zoomed;
    hovered.current = -1;
    spoken.value = describe(zoomed);
    // The root, or, where that would push the zoomed node out of sight, the node's own row below two of its callers.
    const depthPx = view.depth[zoomed] * flame.ROW_PX;
    scrollFromRoot(depthPx > heightPx / 2 ? depthPx - 2 * flame.ROW_PX : 0);
    draw();
  }, [view, zoomed, isIcicle, widthPx > 0]);

  function describe(node: number) {
    const name = node === 0 ? "all" : cut(nameOf(view.label[node]));
    return `${name}: ${recording.value.amount(view.total[node])}, ${percent(share(view.total[node], view.events))}`;
  }

  function select(node: number) {
    const now = look();
    if (node < 0 || !flame.isShown(now, node)) return;
    selected.current = node;
    const y = flame.rowTop(now, view.depth[node]);
    const scrolled = scroll.current!;
    if (y < scrolled.scrollTop) scrolled.scrollTop = y;
    else if (y + flame.ROW_PX > scrolled.scrollTop + heightPx) scrolled.scrollTop = y + flame.ROW_PX - heightPx;
    const box = canvas.current!.getBoundingClientRect();
    const after = look();
    showTip(view, node, box.left + flame.span(after, node)[0], box.top + y - after.topPx + 8);
    spoken.value = describe(node);
    draw();
  }

  function sibling(node: number, step: 1 | -1) {
    const above = view.parent[node];
    if (node === zoomed || above < 0) return node;
    if (step > 0) return view.end[node] < view.end[above] ? view.end[node] : node;
    let at = above + 1;
    if (at === node) return node;
    while (view.end[at] !== node) at = view.end[at];
    return at;
  }

  function press(event: KeyboardEvent) {
    const node = selected.current;
    const callee = view.end[node] > node + 1 && view.depth[node] + 1 < rows ? node + 1 : node;
    const down = isIcicle ? callee : view.parent[node];
    const up = isIcicle ? view.parent[node] : callee;
    const actions: Record<string, () => void> = {
      ArrowDown: () => select(down),
      ArrowUp: () => select(up),
      ArrowRight: () => select(sibling(node, 1)),
      ArrowLeft: () => select(sibling(node, -1)),
      Home: () => select(zoomed),
      Enter: () => props.onZoom(node),
      Backspace: () => props.onZoom(Math.max(0, view.parent[zoomed])),
      s: () => focus(node),
      l: () => showCode(view.label[node]),
      m: () => ask(node),
    };
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  function focus(node: number) {
    const label = view.label[node];
    if (node > 0 && label < recording.value.functions.name.length) props.onFocus(label);
  }

  /** The menu of a node, beside it. */
  function ask(node: number) {
    const box = canvas.current!.getBoundingClientRect();
    const now = look();
    const [left] = flame.span(now, node);
    const y = box.top + flame.rowTop(now, view.depth[node]) - now.topPx + flame.ROW_PX;
    openMenu({ label: view.label[node], path: props.isWhole ? pathTo(view, node) : null, x: box.left + left + 20, y, from: canvas.current });
  }

  function nodeUnder(event: MouseEvent) {
    const box = canvas.current!.getBoundingClientRect();
    return flame.nodeAtPixel(look(), event.clientX - box.left, event.clientY - box.top);
  }

  function hover(event: MouseEvent) {
    const node = nodeUnder(event);
    showTip(view, node, event.clientX, event.clientY);
    if (node === hovered.current) return;
    hovered.current = node;
    draw();
  }

  return (
    <div class="flame">
      <div
        class="scroll"
        ref={scroll}
        style={{ height: `${heightPx}px` }}
        onScroll={() => { fromRootPx.current = turned(scroll.current!.scrollTop); hideTip(); draw(); }}
      >
        <div style={{ height: `${wholePx}px` }}>
          <canvas
            ref={canvas}
            class="graph"
            tabIndex={0}
            role="application"
            aria-roledescription="flame graph"
            aria-label={`${props.label}. ${spoken.value}`}
            onMouseMove={hover}
            onMouseLeave={() => { hovered.current = -1; hideTip(); draw(); }}
            onClick={(event) => {
              const node = nodeUnder(event);
              hideTip();
              if (node < 0) return;
              if (event.shiftKey) focus(node);
              else props.onZoom(node);
            }}
            onContextMenu={(event) => {
              event.preventDefault();
              const node = nodeUnder(event);
              if (node <= 0) return;
              const path = props.isWhole ? pathTo(view, node) : null;
              openMenu({ label: view.label[node], path, x: event.clientX, y: event.clientY, from: canvas.current });
            }}
            onKeyDown={press}
            onFocus={draw}
            onBlur={() => { hideTip(); draw(); }}
          />
        </div>
      </div>
      <p class="unseen" aria-live="polite">{spoken}</p>
    </div>
  );
}
