import { leftOf, type View, walk } from "./tree";

export const ROW_PX = 20;
/** Narrower boxes are not drawn. */
const LEAST_PX = 0.6;

/** What a flame graph looks like. */
export interface Look {
  view: View;
  zoomed: number;
  /** The root is at the top: an icicle. */
  isIcicle: boolean;
  widthPx: number;
  rows: number;
  /** The first row of pixels that is seen, and how many are. */
  topPx: number;
  heightPx: number;
  nameOf(label: number): string;
  colourOf(node: number): string;
  /** By label; `null` without a search. */
  found: Uint8Array | null;
  theme: Theme;
}

/** Colours and letters of the page. */
export interface Theme {
  isDark: boolean;
  paper: string;
  ink: string;
  match: string;
  font: string;
}

/** The theme that holds now. */
export function themeOf(isDark: boolean): Theme {
  const style = getComputedStyle(document.documentElement);
  const value = (name: string) => style.getPropertyValue(name).trim();
  return { isDark, paper: value("--panel"), ink: value("--ink"), match: value("--match"), font: `12px ${value("--mono")}` };
}

/** How many rows it takes to show all boxes that are wide enough. */
export function rowsOf(view: View, zoomed: number, widthPx: number): number {
  let deepest = view.depth[zoomed];
  const least = (view.value[zoomed] * LEAST_PX) / Math.max(widthPx, 1);
  for (let node = zoomed; node < view.end[zoomed];) {
    if (view.value[node] < least) {
      node = view.end[node];
      continue;
    }
    deepest = Math.max(deepest, view.depth[node]);
    node++;
  }
  return deepest + 1;
}

/** Whether a node can be seen: it is at, below or above the zoomed one. */
export const isShown = ({ view, zoomed }: Look, node: number) =>
  (node >= zoomed && node < view.end[zoomed]) || (node < zoomed && view.end[node] > zoomed);

/** Where the row of a depth begins. */
export const rowTop = ({ isIcicle, rows }: Look, depth: number) => (isIcicle ? depth : rows - 1 - depth) * ROW_PX;

type Span = [leftPx: number, widthPx: number];

/** Where a node begins, and how wide it is. */
export function span({ view, zoomed, widthPx }: Look, node: number): Span {
  // What leads to the zoomed node spans the whole width.
  if (node <= zoomed && view.end[node] > zoomed) return [0, widthPx];
  const scale = widthPx / (view.value[zoomed] || 1);
  return [leftOf(view, node, zoomed) * scale, view.value[node] * scale];
}

/** The node at a place of the canvas; -1: there is none. */
export function nodeAtPixel(look: Look, x: number, y: number): number {
  const { view, zoomed, isIcicle, rows, widthPx, topPx } = look;
  const row = Math.floor((y + topPx) / ROW_PX);
  const depth = isIcicle ? row : rows - 1 - row;
  if (depth < 0 || depth >= rows || x < 0 || x > widthPx) return -1;
  if (depth <= view.depth[zoomed]) {
    let node = zoomed;
    while (view.depth[node] > depth) node = view.parent[node];
    return node;
  }
  const at = (x * view.value[zoomed]) / widthPx;
  let found = -1;
  walk(view, zoomed, (node, left) => {
    const isUnder = found < 0 && at >= left && at < left + view.value[node];
    if (isUnder && view.depth[node] === depth) found = node;
    return isUnder && found < 0;
  });
  return found;
}

/** Draws what is seen. */
export function paint(pen: CanvasRenderingContext2D, look: Look, outlined: number[]) {
  const { view, zoomed, widthPx, heightPx, theme } = look;
  pen.fillStyle = theme.paper;
  pen.fillRect(0, 0, widthPx, heightPx);
  pen.font = theme.font;
  pen.textBaseline = "middle";
  const charPx = pen.measureText("0").width || 7;
  for (let node = view.parent[zoomed]; node >= 0; node = view.parent[node]) paintNode(pen, look, node, [0, widthPx], charPx);
  const least = (view.value[zoomed] * LEAST_PX) / widthPx;
  const scale = widthPx / (view.value[zoomed] || 1);
  walk(view, zoomed, (node, left) => {
    if (node > zoomed && (view.value[node] < least || view.depth[node] >= look.rows)) return false;
    paintNode(pen, look, node, node === zoomed ? [0, widthPx] : [left * scale, view.value[node] * scale], charPx);
    return true;
  });
  for (const node of outlined) {
    if (node < 0 || node >= view.count || !isShown(look, node)) continue;
    const [left, width] = span(look, node);
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(left + 0.75, rowTop(look, view.depth[node]) - look.topPx + 0.75, Math.max(width - 2.5, 1), ROW_PX - 2.5);
  }
}

function paintNode(pen: CanvasRenderingContext2D, look: Look, node: number, [left, width]: Span, charPx: number) {
  const { view, zoomed, found, theme } = look;
  const y = rowTop(look, view.depth[node]) - look.topPx;
  if (y + ROW_PX < 0 || y > look.heightPx) return;
  const isFound = found !== null && node > 0 && found[view.label[node]] === 1;
  const isDim = (found !== null && !isFound) || node < zoomed && view.end[node] > zoomed;
  const boxPx = Math.max(width - (width > 3 ? 1 : 0), LEAST_PX);
  pen.globalAlpha = isDim ? (theme.isDark ? 0.3 : 0.36) : theme.isDark ? 0.9 : 1;
  pen.fillStyle = look.colourOf(node);
  pen.fillRect(left, y, boxPx, ROW_PX - 1);
  pen.globalAlpha = 1;
  if (isFound) {
    pen.fillStyle = theme.match;
    pen.fillRect(left, y + ROW_PX - 4, boxPx, 3);
  }
  const room = Math.floor((width - 9) / charPx);
  if (room < 2) return;
  const name = node === 0 ? "all" : look.nameOf(view.label[node]);
  pen.fillStyle = isDim ? theme.ink : "#1b1a1e";
  pen.fillText(name.length > room ? `${name.slice(0, room - 1)}…` : name, left + 4, y + ROW_PX / 2 - 0.5, width - 8);
}
