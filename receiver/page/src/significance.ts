// Whether two numbers of samples differ by more than chance explains: the same test as in `receiver/render/src/significance.rs`.

/** The probability of one or more changes that are none, over all functions. */
const SIGNIFICANCE = 0.05;
/** Above this sum, the normal distribution is as good as adding up. */
const EXACT_MAX = 20_000;

/** Whether chance explains that these numbers of samples, of so many each, differ; of so many comparisons. */
export function isNoise(counts: [number, number], of: [number, number], comparisons: number): boolean {
  return chance(counts, of) * comparisons > SIGNIFICANCE;
}

/** The probability of numbers that are as different or more, if both have the same rate. */
function chance([before, after]: [number, number], of: [number, number]): number {
  const sum = before + after;
  const probability = of[0] / (of[0] + of[1]);
  if (sum === 0 || !(probability > 0 && probability < 1)) return 1;
  if (sum > EXACT_MAX) {
    const distance = (before - sum * probability) / Math.sqrt(sum * probability * (1 - probability));
    return 2 * normalTail(Math.abs(distance));
  }
  return Math.min(1, 2 * Math.min(binomialTail(before, sum, probability), binomialTail(after, sum, 1 - probability)));
}

/** The probability of at least `least` successes in `trials`. */
function binomialTail(least: number, trials: number, probability: number): number {
  const odds = probability / (1 - probability);
  let logarithm = lnFactorial(trials) - lnFactorial(least) - lnFactorial(trials - least)
    + least * Math.log(probability) + (trials - least) * Math.log1p(-probability);
  let sum = 0;
  for (let successes = least; successes <= trials; successes++) {
    const term = Math.exp(logarithm);
    sum += term;
    if (successes > trials * probability && term < sum * 1e-12) break;
    logarithm += Math.log(((trials - successes) / (successes + 1)) * odds);
  }
  return Math.min(1, sum);
}

/** Stirling's series; exact for small numbers. */
function lnFactorial(n: number): number {
  if (n < 10) {
    let sum = 0;
    for (let factor = 2; factor <= n; factor++) sum += Math.log(factor);
    return sum;
  }
  return n * Math.log(n) - n + 0.5 * Math.log(2 * Math.PI * n) + 1 / (12 * n) - 1 / (360 * n ** 3) + 1 / (1260 * n ** 5);
}

/** The probability that a standard normal variable is at least `distance`, which is not negative. */
function normalTail(distance: number): number {
  const x = distance / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  return 0.5 * ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
}
