// Costs of the lines and the instructions of `e2e/workloads/lines.c`: in the page at LIVE, else in `lines.html`.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { follow, launch, open, picture, violations } from "./browser.mjs";

const url = process.env.LIVE;
let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const panel = (page) => page.getByRole("region", { name: "Code" });
const samples = async (page) => parseInt((await page.locator("header b").first().innerText()).replaceAll(",", ""), 10);
/** The rows of the code with their costs, in percent. */
const rows = (page) => panel(page).locator("tbody tr:not(.head)").evaluateAll((rows) => rows.map((row) => {
  const [own, total, at, text] = [...row.cells].map((cell) => cell.innerText.trim());
  return { own: parseFloat(own || "0"), total: parseFloat(total || "0"), at, text };
}));
const near = (value, expected, what) => assert.ok(Math.abs(value - expected) < 8, `${what}: ${value}%, not about ${expected}%`);

test("costs of lines and of instructions are what the program spends there", async () => {
  const page = await (url ? follow(browser, url) : open(browser, "lines.html"));
  try {
    for (let tries = 0; (await samples(page)) < 2000; tries++) {
      assert.ok(tries < 150, "not enough samples");
      await new Promise((done) => setTimeout(done, 200));
    }
    await page.getByRole("searchbox").fill("/^work$/");
    await page.locator("section[aria-label=Functions] tr", { has: page.getByRole("button", { name: "work", exact: true }) }).dblclick({ position: { x: 20, y: 10 } });
    await panel(page).locator("td.text code").first().waitFor();
    const lines = await rows(page);
    const line = (text) => lines.find((line) => line.text.startsWith(text));
    near(line("burn(6 * part);").total, 60, "the inlined loop");
    assert.match(line("burn(6 * part);").text, /↳ burn 6\d|↳ burn 5\d/);
    near(lines.filter((line) => line.text === "LOOP(count);").reduce((sum, { own }) => sum + own, 0), 20, "the function's own loop");
    near(line("count = called(2 * part);").total, 20, "what it calls");
    assert.ok(line("count = called(2 * part);").own < 2, "what it calls is no time of its own");
    assert.ok(line("}").total < 2, "lines without cost are there");
    const name = url ? (url.endsWith("/") && /:\d+\/$/.test(url) ? "live" : "view") : "file";
    await picture(page, `source-${name}`);

    await panel(page).getByRole("button", { name: "Assembly" }).click();
    await panel(page).locator("td.address").first().waitFor();
    const instructions = await rows(page);
    const own = (isSo) => instructions.filter(isSo).reduce((sum, { own }) => sum + own, 0);
    const loops = instructions.map(({ text }, at) => (text.startsWith("jne") ? at : -1)).filter((at) => at >= 0);
    assert.equal(loops.length, 2, "two loops");
    near(own((_) => true), 80, "all of its instructions");
    const loop = (end) => instructions.slice(end - 5, end + 1).reduce((sum, { own }) => sum + own, 0);
    near(loop(loops[0]), 60, "the first loop");
    near(loop(loops[1]), 20, "the second loop");
    const call = instructions.find(({ text }) => text.startsWith("call"));
    assert.match(call.text, /<called>$/);
    near(call.total, 20, "the call");
    assert.ok(call.own < 2, "the same of the instruction");
    const head = await panel(page).innerText();
    assert.match(head, /lines · build ID [0-9a-f]{40} · work [0-9a-f]+–[0-9a-f]+/);
    assert.match(head, /unwound by table: prologue, epilogue or leaf, or no frame pointer/);
    assert.match(head, /workloads\/lines\.c:11\s+LOOP\(count\);/, "the line of the inlined loop");
    await picture(page, `assembly-${name}`);
    assert.deepEqual(await violations(page), []);
    if (!url) {
      await page.setViewportSize({ width: 390, height: 844 });
      await picture(page, "assembly-small");
      await page.emulateMedia({ colorScheme: "dark" });
      await page.setViewportSize({ width: 1440, height: 900 });
      await picture(page, "assembly-dark");
      assert.deepEqual(await violations(page), []);
    }
    assert.deepEqual(page.complaints, []);
  } finally {
    await page.context().close();
  }
});
