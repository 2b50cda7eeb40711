import type { RefObject } from "preact";
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";

/** What stays free below the last list: the margin of its card and of the page. */
const MARGIN_PX = 64;

/** The height that an element can take: down to the lower end of the window, and at least so much. */
export function useRoomBelow(element: RefObject<HTMLElement | null>, leastPx: number): number {
  const roomPx = useSignal(leastPx);
  useLayoutEffect(() => {
    const measure = () => {
      if (!element.current) return;
      const topPx = element.current.getBoundingClientRect().top + scrollY;
      roomPx.value = Math.max(leastPx, Math.floor(innerHeight - topPx - MARGIN_PX));
    };
    // What is above comes and goes.
    const observer = new ResizeObserver(measure);
    observer.observe(document.body);
    addEventListener("resize", measure);
    measure();
    return () => {
      observer.disconnect();
      removeEventListener("resize", measure);
    };
  }, []);
  return roomPx.value;
}
