import type { Recording } from "./recording";

const number = new Intl.NumberFormat("en");

/** A whole number with its thousands parted. */
export const whole = (value: number) => number.format(value);

/** A share in percent. */
export const percent = (share: number) => `${(100 * share).toFixed(2)}%`;

/** The difference of two shares, in points of percent, with its sign. */
export const points = (difference: number) => {
  const text = (100 * Math.abs(difference)).toFixed(2);
  return text === "0.00" ? "±0.00" : `${difference > 0 ? "+" : "−"}${text}`;
};

/** Events a second: a time a second where they stand for one. */
export function rate({ periodNs }: Recording, perSecond: number): string {
  return periodNs > 0 ? `${((perSecond * periodNs) / 1e6).toFixed(2)} ms/s` : `${perSecond.toFixed(2)}/s`;
}

/** The difference of two rates, with its sign. */
export function rateChange(recording: Recording, difference: number): string {
  const text = rate(recording, Math.abs(difference));
  return text.startsWith("0.00") ? `±${text}` : `${difference > 0 ? "+" : "−"}${text}`;
}

/** A time as people say it. */
export function seconds(value: number): string {
  if (value === 0) return "0 s";
  if (value >= 100) return `${value.toFixed(0)} s`;
  if (value >= 10) return `${value.toFixed(1)} s`;
  if (value >= 1) return `${value.toFixed(2)} s`;
  return `${(value * 1e3).toFixed(value >= 0.01 ? 0 : 2)} ms`;
}

/** The text, cut where it is longer than anybody reads. */
export const cut = (text: string, length = 400) => (text.length > length ? `${text.slice(0, length)}…` : text);
