// What it costs a browser to open a page: the time until its flame graph is drawn, the CPU time of the process that shows it, and
// that process' anonymous memory, as Chromium's task manager counts it.
//
//   node opening.mjs FILE TURNS
//
// Prints a line of JSON for each turn.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { browsers, launch, settle } from "./browser.mjs";

/** How often the memory is looked at while the page is opened. */
const POLL_MS = 5;
/** A page of a machine that is busy with something else is waited for. */
const TIMEOUT_MS = 120_000;

const [file, turns] = process.argv.slice(2);
const browser = await launch(browsers);
const session = await browser.newBrowserCDPSession();
for (let turn = 0; turn < +turns; turn++) console.log(JSON.stringify(await opening(pathToFileURL(resolve(file)).href)));
await browser.close();

async function opening(url) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  // The process that was started for this page shows its next one, too.
  await page.goto("about:blank");
  const started = await newest();
  let peakMib = 0;
  const watch = setInterval(() => (peakMib = Math.max(peakMib, anonymousMib(started.id))), POLL_MS);
  await page.goto(url, { timeout: TIMEOUT_MS });
  await page.locator("canvas.graph").first().waitFor({ timeout: TIMEOUT_MS });
  await settle(page);
  const seconds = (await page.evaluate(() => performance.now())) / 1e3;
  clearInterval(watch);
  const shows = await newest();
  if (shows.id !== started.id) throw new Error("another process shows the page");
  const debugging = await context.newCDPSession(page);
  await debugging.send("HeapProfiler.collectGarbage");
  const heldMib = anonymousMib(shows.id);
  await context.close();
  return { seconds, cpuSeconds: shows.cpuTime - started.cpuTime, peakMib, heldMib };
}

/** The process that was started last to show pages. */
async function newest() {
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  return processInfo.filter(({ type }) => type === "renderer").reduce((last, one) => (one.id > last.id ? one : last));
}

function anonymousMib(pid) {
  return +/^RssAnon:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1] / 1024;
}
