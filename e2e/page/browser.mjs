// Chromium without a window, and what the tests say to it.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

/** Browsers as people have them. */
export const browsers = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
/** The same without a user interface of its own: it opens a page in a third of the CPU time. */
const shell = "/usr/bin/chromium-headless-shell";
/** Where the pages are, as the test wrote them, and where pictures of them go. */
const folder = process.env.PAGES ?? ".";
const pictures = join(folder, "pictures");
if (process.env.PAGES) mkdirSync(pictures, { recursive: true });

/** Where the test wrote a file. */
export const written = (name) => join(folder, name);
/** Where a file is kept beside the pictures. */
export const kept = (name) => join(pictures, name);

/** Starts the first of these browsers that is installed. */
export async function launch(paths = [shell, ...browsers]) {
  for (const executablePath of paths) {
    try {
      return await chromium.launch({ executablePath, args: ["--no-sandbox"] });
    } catch (error) {
      if (!/executable doesn't exist|ENOENT/i.test(error.message)) throw error;
    }
  }
  throw new Error(`none of ${paths.join(", ")} is installed`);
}

/**
 * Opens a page, with whatever a link asks for, offline. What it says on the console, throws, or is denied by its own
 * security policy ends up in `complaints`.
 */
export async function open(browser, name, { hash = "", ...options } = {}) {
  const page = await blank(browser, /^(file|blob):/, { offline: true, ...options });
  await page.goto(pathToFileURL(written(name)).href + (hash && `#${hash}`));
  await page.locator("canvas.graph").first().waitFor();
  return page;
}

/** Opens a page that a profiler serves. It may ask that profiler, and nobody else. */
export async function follow(browser, url, options) {
  const page = await blank(browser, { test: (asked) => asked.startsWith(url) || asked.startsWith("blob:") }, options);
  await page.goto(url);
  await page.locator("canvas.graph").first().waitFor();
  return page;
}

/** A test with a page of its own, which `opened` opens and which must not complain. */
export function testPage(what, opened, act) {
  test(what, async () => {
    const page = await opened();
    try {
      await act(page);
      assert.deepEqual(page.complaints, []);
    } finally {
      await page.context().close();
    }
  });
}

async function blank(browser, allowed, options) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 1000 }, colorScheme: "light", ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.on("console", (message) => page.complaints.push(message.text()));
  page.on("pageerror", (error) => page.complaints.push(error.message));
  page.on("request", (request) => allowed.test(request.url()) || page.complaints.push(`asked for ${request.url()}`));
  return page;
}

/** What axe finds. The page's own policy lets no other script in: axe comes by the debugger. */
export async function violations(page) {
  await page.evaluate(await readFile(new URL("node_modules/axe-core/axe.min.js", import.meta.url), "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map((node) => node.html).join(" ")}`);
}

/** Keeps a picture of the whole page. */
export async function picture(page, name) {
  await settle(page);
  await page.screenshot({ path: kept(`${name}.png`), fullPage: true });
}

/** Waits until what was asked for is drawn. */
export async function settle(page) {
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
}

/** The texts of all elements. */
export const texts = (page, selector) => page.locator(selector).allInnerTexts();

/** The colour of a canvas at a place of the page. */
export function pixel(page, selector, x, y) {
  return page.locator(selector).first().evaluate(async (canvas, [x, y]) => {
    // It has its size once the page has been laid out.
    while (canvas.width === 0 || canvas.height === 0) await new Promise(requestAnimationFrame);
    const ratio = canvas.width / canvas.clientWidth;
    const pen = new OffscreenCanvas(1, 1).getContext("2d");
    pen.drawImage(canvas, -Math.round(x * ratio), -Math.round(y * ratio));
    return [...pen.getImageData(0, 0, 1, 1).data];
  }, [x, y]);
}
