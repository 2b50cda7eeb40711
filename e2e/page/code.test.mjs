// Costs of lines. The profile is `search` of `e2e/tests/end_to_end/page/code.rs`.

import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch, open, picture, testPage, violations } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shows = (what, act, options) => testPage(what, () => open(browser, "code.html", options), act);

const panel = (page) => page.getByRole("region", { name: "Code" });
/** The lines with a cost: self, total, number, text. */
const costly = (page) => panel(page).locator("tbody tr:not(.cold)").evaluateAll((rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()).join(" | ").trim()));
const row = (page, name) => page.locator("section[aria-label=Functions] tr", { has: page.getByRole("button", { name, exact: true }) });

shows("a double click shows what each line of a function costs, and what is inlined there", async (page) => {
  await row(page, "search").dblclick({ position: { x: 20, y: 10 } });
  assert.deepEqual(await costly(page), [
    "| 60.00% | 12 | line 12 of <b>search</b>; ↳ hash 60.00%",
    "20.00% | 30.00% | 14 | line 14 of <b>search</b>;",
  ]);
  assert.match(await panel(page).locator("tr.hottest").innerText(), /line 12/);
  const lines = await panel(page).locator("td.line").allInnerTexts();
  assert.deepEqual([lines[0], lines.at(-1), lines.length], ["1", "26", 26], "twelve lines around those with a cost");
  assert.match(await panel(page).locator("td.number").nth(12 * 2 - 1).getAttribute("title"), /^60 samples, 1\.20 s$/);
  assert.match(page.url(), /code=1|code=2/);
  await panel(page).getByRole("button", { name: "hash" }).click();
  assert.deepEqual(await costly(page), ["60.00% | 60.00% | 3 |"], "without its text");
  assert.match(await panel(page).innerText(), /The text of this file is not here: --source-path DIR/);
  await page.keyboard.press("Escape");
  assert.equal(await panel(page).count(), 0);
});

shows("costs are those of the time that is selected, and a link has them", async (page) => {
  const graph = page.getByRole("application", { name: /^Flame graph/ });
  await graph.focus();
  for (const key of ["ArrowDown", "ArrowDown", "l"]) await page.keyboard.press(key);
  assert.match(await panel(page).innerText(), /search/);
  await page.goto(page.url().replace("#", "#time=1-2&"));
  await page.reload();
  assert.deepEqual(await costly(page), ["50.00% | 75.00% | 14 | line 14 of <b>search</b>;"]);
  await panel(page).getByRole("button", { name: "Assembly" }).click();
  assert.match(await panel(page).innerText(), /The page contains no instructions/);
  assert.match(page.url(), /form=assembly/);
});

shows("what has no lines says why", async (page) => {
  await row(page, "compare").click({ button: "right", position: { x: 20, y: 10 } });
  await page.getByRole("menuitem", { name: "Source" }).click();
  assert.match(await panel(page).innerText(), /No lines are known for this function/);
});

for (const [name, viewport] of [["wide", { width: 1440, height: 900 }], ["small", { width: 390, height: 844 }]]) {
  for (const colorScheme of ["light", "dark"]) {
    shows(`source, ${name} and ${colorScheme}, can be read by everybody`, async (page) => {
      await row(page, "search").dblclick({ position: { x: 20, y: 10 } });
      await picture(page, `source-${name}-${colorScheme}`);
      assert.deepEqual(await violations(page), []);
    }, { viewport, colorScheme });
  }
}
