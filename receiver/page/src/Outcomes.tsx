import { recording } from "./state";
import { share } from "./tree";
import { percent, whole } from "./words";

const MEANING = { complete: "the whole stack", cut: "truncated stack", lost: "lost sample", aside: "not profiled" };
const ORDER = ["complete", "cut", "lost", "aside"] as const;

/** How the interrupts ended. Truncated stacks and lost samples are shown at first sight. */
export function Outcomes() {
  const occurred = recording.value.outcomes.filter(({ count }) => count > 0);
  if (occurred.length === 0) return null;
  const sum = (severity: string) => occurred.reduce((all, one) => all + (one.severity === severity ? one.count : 0), 0);
  const [complete, cut, lost, aside] = ORDER.map(sum);
  const wanted = complete + cut + lost;
  // Short enough for two lines of a phone.
  const parts = [`${percent(share(complete, wanted))} of stacks complete`];
  if (cut > 0) parts.push(`${whole(cut)} truncated`);
  if (lost > 0) parts.push(`${whole(lost)} lost`);
  if (aside > 0) parts.push(`${whole(aside)} other processes, or idle`);
  const sorted = occurred.sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity) || b.count - a.count);
  return (
    <details class={`outcomes ${lost > 0 ? "lost" : cut > 0 ? "cut" : ""}`}>
      <summary>
        <span class="bar" aria-hidden="true">
          {([["complete", complete], ["cut", cut], ["lost", lost]] as const).map(([kind, count]) =>
            count > 0 && <i key={kind} class={kind} style={{ width: `${100 * share(count, wanted)}%` }} />)}
        </span>
        <span class="said">{wanted > 0 ? parts.join(" · ") : `No samples: ${whole(aside)} other processes, or idle`}</span>
      </summary>
      <table>
        <thead><tr><th scope="col">outcome</th><th scope="col" class="number">interrupts</th><th scope="col" class="number">share</th><th scope="col">meaning</th></tr></thead>
        <tbody>
          {sorted.map((outcome) => (
            <tr key={outcome.name}>
              <td><i class={`dot ${outcome.severity}`} />{outcome.name}</td>
              <td class="number">{whole(outcome.count)}</td>
              <td class="number">{percent(share(outcome.count, wanted + aside))}</td>
              <td>{MEANING[outcome.severity]}{outcome.help && `: ${outcome.help}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}
