/** Moves a box beside a place of the window, to where there is room for it. */
export function moveBeside(box: HTMLElement, { x, y }: { x: number; y: number }) {
  const { width, height } = box.getBoundingClientRect();
  const left = Math.max(8, Math.min(x + 14, innerWidth - width - 8));
  const top = y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18;
  Object.assign(box.style, { left: `${left}px`, top: `${top}px` });
}
