// The page that follows what is profiled, as `e2e/tests/end_to_end/page/live.rs` serves it: a program that climbs through ten
// functions and never rests.

import assert from "node:assert/strict";
import { rename } from "node:fs/promises";
import { after, before, test } from "node:test";
import { follow, kept, launch, open, picture, testPage, texts, violations, written } from "./browser.mjs";

const url = process.env.LIVE;
let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shows = (what, act, options) => testPage(what, () => follow(browser, url, options), act);

const samples = async (page) => parseInt((await page.locator("header b").first().innerText()).replaceAll(",", ""), 10);
const seconds = (count) => new Promise((done) => setTimeout(done, count * 1e3));
const bar = (page) => page.getByRole("region", { name: "Live" });
const graph = (page) => page.getByRole("application", { name: /^Flame graph/ });

/** Waits until something is so. */
async function until(what, isSo) {
  for (let tries = 0; tries < 150; tries++) {
    if (await isSo()) return;
    await seconds(0.2);
  }
  throw new Error(`after half a minute it is not so: ${what}`);
}

/** Waits until there are more samples than these, and tells how many. */
async function more(page, than) {
  let now;
  await until(`more than ${than} samples`, async () => (now = await samples(page)) > than);
  return now;
}

shows("it fills while the program runs", async (page) => {
  const first = await more(page, 0);
  await picture(page, "live-early");
  const second = await more(page, first);
  await more(page, second);
  assert.match(await bar(page).innerText(), /live.*are kept/s);
  assert.ok((await texts(page, "tbody td.name button")).some((name) => /climb/.test(name)));
  assert.match(await page.locator(".outcomes").innerText(), /of stacks complete/);
  await picture(page, "live");
});

shows("what was looked at is still looked at when more comes", async (page) => {
  await more(page, 100);
  await graph(page).focus();
  for (let depth = 0; depth < 5; depth++) await page.keyboard.press("ArrowDown");
  const selected = (await graph(page).getAttribute("aria-label")).replace(/: .*/, "");
  await page.keyboard.press("Enter");
  const path = await texts(page, "nav[aria-label='Zoomed to'] button");
  const now = await samples(page);
  await more(page, now);
  await more(page, await samples(page));
  assert.deepEqual(await texts(page, "nav[aria-label='Zoomed to'] button"), path, "the zoom");
  await page.keyboard.press("ArrowRight");
  assert.equal((await graph(page).getAttribute("aria-label")).replace(/: .*/, ""), selected, "the box with the focus");
  await page.getByRole("searchbox").fill("climb");
  await more(page, await samples(page));
  assert.equal(await page.getByRole("searchbox").inputValue(), "climb");
  assert.ok(parseFloat(await page.locator(".matched").innerText()) > 0);
});

shows("a pause stops the picture, and nothing is missed by it", async (page) => {
  await more(page, 0);
  await page.getByRole("button", { name: "Pause" }).click();
  await seconds(0.5);
  const before = await samples(page);
  // Twice as long as between two reports.
  await seconds(2);
  assert.equal(await samples(page), before);
  assert.match(await bar(page).innerText(), /paused/);
  await picture(page, "live-paused");
  await page.keyboard.press("p");
  const after = await more(page, before);
  const fresh = await follow(browser, url);
  // Both hold what the profiler holds: the one that was opened later may hold a little more.
  const other = await samples(fresh);
  await fresh.context().close();
  assert.ok(other >= after && await more(page, other - 1) >= other, `${after}, ${other}`);
});

shows("a range of time stays where it was put, and the newest time is followed", async (page) => {
  await more(page, 1500);
  await page.getByLabel("time: from, in seconds").fill("0");
  await page.getByLabel("time: to, in seconds").fill("1");
  await page.getByLabel("time: to, in seconds").press("Tab");
  await seconds(1.5);
  const early = await samples(page);
  await seconds(2);
  assert.equal(await samples(page), early, "nothing comes into the past");
  await page.getByRole("button", { name: "All of the time" }).click();
  assert.ok(await samples(page) > early);
  const to = async () => +(await page.getByLabel("time: to, in seconds").inputValue());
  await until("more than 10 s", async () => await to() > 10.5);
  await bar(page).getByRole("combobox").selectOption({ label: "the last 10 s" });
  const from = async () => +(await page.getByLabel("time: from, in seconds").inputValue());
  // Both at once: the range may move along between two questions.
  const range = page.getByLabel(/^time: (from|to), in seconds$/);
  const [began, whole] = await range.evaluateAll((fields) => fields.map((field) => +field.value));
  assert.ok(Math.abs(whole - began - 10) < 0.2, `${began} to ${whole}`);
  await until("it moves along", async () => await from() > began + 1);
  await picture(page, "live-last");
});

shows("what is shown can be saved in every form", async (page) => {
  await more(page, 500);
  await page.getByRole("button", { name: "Pause" }).click();
  await seconds(0.5);
  const shown = await samples(page);
  const save = async (what) => {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByText(what, { exact: true }).click()]);
    await download.saveAs(kept(`live-${download.suggestedFilename()}`));
  };
  for (const suffix of [".folded", ".svg", ".otlp", ".pb.gz", ".html"]) await save(`Save ${suffix}`);
  // The test reads the others.
  await rename(kept("live-profile.html"), written("live-saved.html"));
  const saved = await open(browser, "live-saved.html");
  const inFile = await samples(saved);
  // Samples from before the pause still arrive, 499 of each second: those of half a second.
  assert.ok(shown * 0.98 <= inFile && inFile <= shown + 250, `${inFile} of ${shown}`);
  assert.equal(await saved.getByRole("region", { name: "Live" }).count(), 0);
  assert.deepEqual(saved.complaints, []);
  await saved.context().close();
});

for (const colorScheme of ["light", "dark"]) {
  shows(`axe finds nothing: ${colorScheme}`, async (page) => {
    await more(page, 0);
    assert.deepEqual(await violations(page), []);
    await page.getByRole("button", { name: "Pause" }).click();
    assert.deepEqual(await violations(page), []);
    if (colorScheme === "dark") await picture(page, "live-dark");
  }, { colorScheme });
}
