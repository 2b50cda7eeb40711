// The page of each kind of profile: its words, its units and its values. The profiles are those of
// `e2e/tests/end_to_end/page/profiles.rs`: what a server of ten seconds does, by page faults, by off-CPU time, by waits for locks and by a probe.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, picture, pixel, settle, texts, violations } from "./browser.mjs";

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
    name: "probe",
    header: /^512 kB of written in 10\.0 s/,
    over: "written",
    most: "up to 5.63 kB",
    tip: ["share", "bytes"],
    value: "256 kB",
    absent: /samples|CPU/,
  },
  {
    name: "delay",
    header: /^20\.0 s of lock wait time in 10\.0 s/,
    over: "lock wait time",
    most: "up to 220 ms",
    tip: ["share", "time"],
    value: "10.0 s",
    absent: /samples|CPU/,
    locks: ["[lock 1111111111111111] in parse_value", "[lock 2222222222222222] in write_all"],
  },
  {
    name: "contentions",
    header: /^1,000 lock contentions in 10\.0 s/,
    over: "lock contentions",
    most: "up to 11 lock contentions",
    tip: ["share", "lock contentions"],
    value: "500 lock contentions",
    absent: /samples|CPU/,
    locks: ["[lock 1111111111111111] in parse_value", "[lock 2222222222222222] in write_all"],
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

  inPictures(kind.name);
}

/**
 * Keeps pictures of a page in both schemes and two sizes, each of which must fit and be accessible. What overflows does not
 * depend on colours, nor does their contrast on the width.
 */
function inPictures(name) {
  test(`${name}: pictures in both schemes and on a telephone`, async () => {
    for (const [colorScheme, size] of [["light", "narrow"], ["dark", "wide"]]) {
      const page = await open(browser, `${name}.html`, { colorScheme, viewport: VIEWPORTS[size] });
      await picture(page, `${name}-${colorScheme}-${size}`);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(overflow <= 0, `${overflow} px wider than ${size}`);
      assert.deepEqual(await violations(page), []);
      await page.context().close();
    }
  });
}

// What the timeline shows of `wall` in `profiles.rs`, where a wait is an event at its end.
test("wall: what threads did and waited for, by colour, in the tip, and to choose", async () => {
  const page = await open(browser, "wall.html");
  const header = async () => (await page.locator("header .what p").innerText()).trim();
  assert.match(await header(), /^30\.0 s of wall time in 10\.0 s/);
  assert.deepEqual(await texts(page, ".thread"), ["worker 101", "writer 102", "main 100"], "who ran or wanted to comes first");
  assert.equal(await page.locator(".sum small").innerText(), "up to 300 ms", "three threads in 100 ms");
  assert.deepEqual(await texts(page, "[aria-label='States'] button"), [
    "running 16.67%", "runnable 3.33%", "uninterruptible 6.67%", "sleeping 70.00%", "stopped 3.33%",
  ]);
  const causes = page.getByRole("list", { name: "What threads wait for" });
  assert.deepEqual(await causes.getByRole("button").allInnerTexts(), [
    "sleep 30.00%", "poll 23.33%", "futex 16.67%", "read 6.67%", "no system call 3.33%",
  ]);

  const { width } = await page.locator(".heat canvas").boundingBox();
  const colours = await page.evaluate(() => {
    const style = getComputedStyle(document.documentElement);
    return Object.fromEntries(["running", "runnable", "uninterruptible", "sleeping", "stopped"].map((state) => [state, style.getPropertyValue(`--${state}`)]));
  });
  const at = async (thread, second) => {
    const [red, green, blue, alpha] = await pixel(page, ".heat canvas", ((second + 0.05) / 10) * width, 44 + 18 * thread + 8);
    const hex = `#${[red, green, blue].map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
    return alpha < 60 ? "nothing" : Object.keys(colours).find((state) => colours[state] === hex) ?? hex;
  };
  const over = async (thread, ...times) => Promise.all(times.map((second) => at(thread, second)));
  assert.deepEqual(await over(0, 0, 4.9, 5, 9.9), ["running", "running", "sleeping", "sleeping"]);
  assert.deepEqual(await over(1, 0, 1.9, 2, 2.9, 3, 6.5, 9.9), ["uninterruptible", "uninterruptible", "runnable", "runnable", "sleeping", "sleeping", "sleeping"]);
  assert.deepEqual(await over(2, 0, 8.9, 9, 9.9), ["sleeping", "sleeping", "stopped", "stopped"]);

  await page.locator(".heat canvas").hover({ position: { x: 0.755 * width, y: 44 + 9 } });
  assert.match(await page.locator(".tip").innerText(), /^worker 101\s+7\.50 s – 7\.60 s\s+sleeping: futex\s+100\.00%\s+100 ms$/);
  await page.locator(".heat canvas").hover({ position: { x: 0.755 * width, y: 9 } });
  assert.match(await page.locator(".tip").innerText(), /^all threads[^]*33\.33%\s+100 ms/);
  await page.mouse.move(5, 5);
  assert.equal(await page.locator(".tip").count(), 0);

  await causes.getByRole("button", { name: /^futex/ }).click();
  assert.match(await header(), /^5\.00 s of wall time/);
  assert.match(page.url(), /states=2/);
  await settle(page);
  assert.deepEqual([await at(0, 1), await at(0, 6), await at(1, 6)], ["nothing", "sleeping", "nothing"], "the others are left out of the timeline, too");
  await page.reload();
  assert.match(await header(), /^5\.00 s of wall time/, "it is part of the link");
  await page.getByLabel("time: from, in seconds").fill("7");
  await page.getByLabel("time: to, in seconds").fill("8");
  await page.getByLabel("time: to, in seconds").press("Enter");
  assert.match(await header(), /^1\.00 s of wall time/, "the part of a wait that is in the range");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Show all states" }).click();
  assert.match(await header(), /^30\.0 s of wall time/);
  assert.deepEqual(page.complaints, []);
  await page.context().close();
});
inPictures("wall");
