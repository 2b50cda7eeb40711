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

/** The unit of rates: time a second where events stand for a time. */
export const rateUnit = ({ periodNs }: Recording) => (periodNs > 0 ? "ms/s" : "/s");

/** Events a second in this unit. */
export const rate = ({ periodNs }: Recording, perSecond: number) => (periodNs > 0 ? (perSecond * periodNs) / 1e6 : perSecond).toFixed(2);

/** The difference of two rates in this unit, with its sign. */
export function rateChange(recording: Recording, difference: number): string {
  const text = rate(recording, Math.abs(difference));
  return text === "0.00" ? "±0.00" : `${difference > 0 ? "+" : "−"}${text}`;
}

/** Three digits of a value from 1 on, or all before the point. */
const threeDigits = (value: number) => value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : 2);

/** A time as people say it. */
export function seconds(value: number): string {
  if (value === 0) return "0 s";
  if (value >= 1) return `${threeDigits(value)} s`;
  return `${(value * 1e3).toFixed(value >= 0.01 ? 0 : 2)} ms`;
}

/** An amount of memory or data as people say it. */
export function bytes(value: number): string {
  const scale = Math.min(4, Math.floor(Math.log10(Math.max(value, 1)) / 3));
  return scale === 0 ? `${whole(value)} bytes` : `${threeDigits(value / 1000 ** scale)} ${["kB", "MB", "GB", "TB"][scale - 1]}`;
}

/** The text, cut where it is longer than anybody reads. */
export const cut = (text: string, length = 400) => (text.length > length ? `${text.slice(0, length)}…` : text);
