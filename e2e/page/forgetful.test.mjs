// The page of a profiler that may hold little: what it no longer holds is said.

import assert from "node:assert/strict";
import { test } from "node:test";
import { follow, launch, picture } from "./browser.mjs";

test("what is no longer held is counted, and the page goes on", async () => {
  const browser = await launch();
  const page = await follow(browser, process.env.LIVE);
  const bar = page.getByRole("region", { name: "Live" });
  await bar.getByText(/older samples were dropped/).waitFor({ timeout: 60_000 });
  const forgotten = async () => parseInt((await bar.locator("b").innerText()).replaceAll(",", ""), 10);
  const first = await forgotten();
  await page.waitForFunction((first) => parseInt(document.querySelector(".live b").textContent.replaceAll(",", ""), 10) > first, first, { timeout: 60_000 });
  assert.ok(parseInt(await page.locator("header b").first().innerText(), 10) > 0, "it holds the newest");
  await picture(page, "live-forgetful");

  // A link means the same time while the window moves, as much of it as there is.
  const from = page.getByLabel("time: from, in seconds");
  const [began, length] = [+(await from.inputValue()), +(await page.getByLabel("time: to, in seconds").inputValue())];
  const typed = (length / 2).toFixed(3);
  await from.fill(typed);
  const second = await forgotten();
  await page.waitForFunction((second) => parseInt(document.querySelector(".live b").textContent.replaceAll(",", ""), 10) > second, second, { timeout: 60_000 });
  assert.equal(await from.inputValue(), typed, "what is typed stays when more arrives");
  await from.press("Tab");
  const time = () => new URLSearchParams(new URL(page.url()).hash.slice(1)).get("time");
  const linked = time();
  assert.ok(began === 0 && /^[1-9]\d+-\d+$/.test(linked), `${linked}, ${began}`);
  await page.waitForFunction((chosen) => +document.querySelector(".limits input").value < chosen, +(await from.inputValue()), { timeout: 60_000 });
  const later = time();
  const [[before, end], [now, endNow]] = [linked, later ?? linked].map((range) => range.split("-").map(Number));
  assert.ok(now >= before && endNow === end, `${linked} has become ${later}`);
  assert.deepEqual(page.complaints, []);
  await browser.close();
});
