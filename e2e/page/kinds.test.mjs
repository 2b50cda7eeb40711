// The page of each kind of profile: its words, its units and its values. The profiles are those of
// `e2e/tests/end_to_end/page/profiles.rs`: what a server of ten seconds does, by page faults, by off-CPU time and by waits for locks.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, picture, pixel, texts, violations } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** The kinds: the words of the header, of the sum over time and of the tip, and the unit that the page must not mention. */
const KINDS = [
  {
    name: "faults",
    header: /^64,000 page faults in 10\.0 s/,
    over: "page faults",
    // 10 + 1 samples in each slice of the first half, 8 + 1 in the second.
    most: "up to 704 page faults",
    tip: ["share", "page faults"],
    value: "32,000 page faults",
    absent: /samples|CPU/,
  },
  {
    name: "off_cpu",
    header: /^250 s of off-CPU time in 10\.0 s/,
    over: "off-CPU time",
    most: "up to 2.75 s",
    tip: ["share", "time"],
    value: "125 s",
    absent: /samples|\d CPUs/,
  },
  {
    name: "delay",
    header: /^20\.0 s of lock wait time in 10\.0 s/,
    over: "lock wait time",
    most: "up to 220 ms",
    tip: ["share", "time"],
    value: "10.0 s",
    absent: /samples|CPU/,
    locks: ["[lock 1111111111111111]", "[lock 2222222222222222]"],
  },
  {
    name: "contentions",
    header: /^1,000 lock contentions in 10\.0 s/,
    over: "lock contentions",
    most: "up to 11 lock contentions",
    tip: ["share", "lock contentions"],
    value: "500 lock contentions",
    absent: /samples|CPU/,
    locks: ["[lock 1111111111111111]", "[lock 2222222222222222]"],
  },
];

const VIEWPORTS = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };

for (const kind of KINDS) {
  test(`${kind.name}: words, units and values`, async () => {
    const page = await open(browser, `${kind.name}.html`);
    assert.match((await page.locator("header .what p").innerText()).trim(), kind.header);
    const strip = page.getByRole("region", { name: `${kind.over} over time` });
    assert.equal(await strip.locator(".sum small").innerText(), kind.most);
    assert.equal(await strip.locator(".sum").getAttribute("title"), "in 100 ms");
    await page.getByRole("img", { name: `${kind.over} of each thread over time` }).waitFor();
    // The busiest thread of a half is dark in that half alone.
    const row = 44 + 9;
    const [dark, light] = [await pixel(page, ".heat canvas", 60, row), await pixel(page, ".heat canvas", 900, row)];
    assert.ok(dark[3] > 150 && light[3] < 60, `${dark} and ${light}`);
    const first = kind.locks ? kind.locks[0] : "parse_value";
    assert.equal((await texts(page, "tbody td.name button"))[0], first, "half of all");
    if (kind.locks) {
      assert.deepEqual((await texts(page, "tbody td.name button")).slice(0, 2), kind.locks);
      assert.ok((await texts(page, ".legend button")).includes("lock"));
    }
    const share = page.locator("tbody td.number").first();
    assert.equal(await share.innerText(), "50.00%");
    assert.equal(await share.getAttribute("title"), kind.value);
    await page.locator("canvas.graph").hover({ position: { x: 100, y: 10 } });
    const head = (await texts(page, ".tip thead th")).filter((word) => word !== "");
    assert.deepEqual(head, kind.tip);
    assert.doesNotMatch(await page.locator("main, header, .tip").allInnerTexts().then((all) => all.join(" ")), kind.absent);
    assert.deepEqual(page.complaints, []);
    await page.context().close();
  });

  test(`${kind.name}: pictures in both schemes and on a telephone`, async () => {
    for (const colorScheme of ["light", "dark"]) {
      for (const [size, viewport] of Object.entries(VIEWPORTS)) {
        const page = await open(browser, `${kind.name}.html`, { colorScheme, viewport });
        await picture(page, `${kind.name}-${colorScheme}-${size}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(overflow <= 0, `${overflow} px wider than ${size}`);
        assert.deepEqual(await violations(page), []);
        await page.context().close();
      }
    }
  });
}
