import { colourOfNode, fullNameOf, nameOf, recording, view } from "./state";
import { share, type View, walk } from "./tree";
import { cut, percent, whole } from "./words";

/** Gives the browser a file to keep. */
export function download(name: string, type: string, text: string) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A name that ends neither its field nor its line. */
const field = (name: string) => name.replaceAll(";", ":").replace(/ ([\d.]*)$/, "_$1");

/** What is selected as folded stacks: root first, parted by `;`, then the events. Names are full: other tools read them. */
export function folded(): string {
  const { value: shown } = view;
  const path: string[] = [];
  const lines: string[] = [];
  for (let node = 1; node < shown.count; node++) {
    path.length = shown.depth[node] - 1;
    const label = shown.label[node];
    const { kind } = recording.value.functions;
    const isKernel = label < kind.length && recording.value.kinds[kind[label]].label === "kernel";
    path.push(field(fullNameOf(label)) + (isKernel ? "_[k]" : ""));
    if (shown.own[node] > 0) lines.push(`${path.join(";")} ${shown.own[node]}\n`);
  }
  return lines.join("");
}

const WIDTH = 1200;
const ROW = 18;

/** What is selected as a picture. */
export function svg(zoomed: number): string {
  const shown = view.value;
  const scale = WIDTH / (shown.value[zoomed] || 1);
  const boxes: string[] = [];
  let rows = 1;
  walk(shown, zoomed, (node, left) => {
    const width = shown.value[node] * scale;
    if (width < 0.3) return false;
    const depth = shown.depth[node] - shown.depth[zoomed];
    rows = Math.max(rows, depth + 1);
    boxes.push(box(shown, node, left * scale, depth * ROW, width));
    return true;
  });
  const size = `width="${WIDTH}" height="${rows * ROW + 34}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="monospace" font-size="11">
<rect width="100%" height="100%" fill="#fbfaf8"/>
<text x="4" y="18" font-size="14">${escape(cut(recording.value.title, 150))}</text>
<g transform="translate(0 30)">
${boxes.join("\n")}
</g>
</svg>
`;
}

function box(shown: View, node: number, left: number, top: number, width: number): string {
  const name = node === 0 ? "all" : nameOf(shown.label[node]);
  const room = Math.floor((width - 6) / 6.7);
  const text = room > 2 ? `<text x="${(left + 3).toFixed(1)}" y="${top + 12}">${escape(cut(name, room - 1))}</text>` : "";
  const fullName = node === 0 ? name : fullNameOf(shown.label[node]);
  const title = `${cut(fullName, 1000)} (${whole(shown.total[node])} samples, ${percent(share(shown.total[node], shown.events))})`;
  const rect = `<rect x="${left.toFixed(1)}" y="${top}" width="${Math.max(width - 0.5, 0.2).toFixed(1)}" height="${ROW - 1}" fill="${colourOfNode(shown, node)}"/>`;
  return `<g><title>${escape(title)}</title>${rect}${text}</g>`;
}

const escape = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
