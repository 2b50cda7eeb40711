import { differenceText, difference, isChance, testedText, type Values } from "./comparison";
import { recording, view } from "./state";

/** How a value changed, and whether chance explains it, as one of so many changes. */
export function Change({ values, comparisons, role }: { values: Values; comparisons: number; role?: "gridcell" }) {
  const change = difference(view.value, values);
  const isNoise = isChance(recording.value, view.value, values, comparisons);
  const [text, numbers] = [differenceText(recording.value, view.value, change), testedText(view.value, values)];
  return (
    <td role={role} class={`number change ${isNoise ? "noise" : change > 0 ? "more" : "less"}`} title={isNoise ? `noise: chance explains ${numbers.replace(" against", " samples against")}` : numbers}>
      {text}{isNoise && !text.startsWith("±") ? " ~" : ""}
    </td>
  );
}
