// The page, used as people use it. The profile is what `e2e/tests/end_to_end/page/profiles.rs` describes: ten seconds of a
// server, the first five of which it parses and the others it writes.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { kept, launch, open, picture, pixel, settle, testPage, texts, violations } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shows = (what, name, act, options) => testPage(what, () => open(browser, name, options), act);

const search = (page, text) => page.getByRole("searchbox").fill(text);
const matched = async (page) => parseFloat(await page.locator(".matched").innerText());
const names = (page) => texts(page, "tbody td.name button");
const graph = (page) => page.getByRole("application", { name: /^Flame graph/ });
const samples = async (page) => parseInt((await page.locator("header b").first().innerText()).replaceAll(",", ""), 10);

shows("functions, outcomes and threads are there at first sight", "server.html", async (page) => {
  assert.match(await page.locator("header").innerText(), /1,000 samples/);
  assert.match(await page.locator(".outcomes").innerText(), /99\.11% of stacks complete · 7 truncated · 2 lost · 900 other processes, or idle/);
  assert.deepEqual((await texts(page, ".thread")).map((name) => name.trim()), ["worker 101", "writer 102", "main 100"]);
  assert.deepEqual((await names(page)).slice(0, 2), ["parse_value", "vfs_write"]);
  assert.deepEqual(await texts(page, ".legend button"), ["native", "Rust", "kernel"]);
  await picture(page, "light");
});

shows("a search tells its share, marks boxes, and is part of the link", "server.html", async (page) => {
  const [x, y] = [200, 30];
  const undimmed = await pixel(page, "canvas.graph", x, y);
  await search(page, "write");
  assert.equal(await matched(page), 40);
  assert.deepEqual((await names(page)).sort(), ["vfs_write", "write_all"]);
  await settle(page);
  assert.notDeepEqual(await pixel(page, "canvas.graph", x, y), undimmed, "what is not found is dimmed");
  await picture(page, "search");
  const link = page.url();
  assert.match(link, /search=write/);
  await search(page, "/^parse_.*$/");
  assert.equal(await matched(page), 50);
  await search(page, "kind:kernel");
  assert.equal(await matched(page), 40);
  await search(page, "/(half typed/");
  assert.equal(await matched(page), 0);
  await page.goto(link);
  await page.reload();
  assert.equal(await matched(page), 40);
});

shows("a click zooms, the path leads back", "server.html", async (page) => {
  await graph(page).click({ position: { x: 300, y: 50 } });
  assert.deepEqual(await texts(page, "nav[aria-label='Zoomed to'] button"), ["all", "main", "serve"]);
  assert.match(page.url(), /zoom=/);
  await picture(page, "zoom");
  await page.reload();
  await graph(page).waitFor();
  assert.equal((await texts(page, "nav button")).at(-1), "serve");
  await page.getByRole("button", { name: "all", exact: true }).click();
  assert.deepEqual(await texts(page, "nav button"), ["all"]);
});

shows("a box tells its file and lines", "server.html", async (page) => {
  await graph(page).hover({ position: { x: 100, y: 70 } });
  const tip = await page.getByRole("tooltip").innerText();
  assert.match(tip, /parse_value/);
  assert.match(tip, /src\/parse\.rs:12 \(80\.00%\), 15 \(20\.00%\)/);
  assert.match(tip, /total\s+50\.00%\s+5\.00 s\s+500/);
});

shows("brushing selects a range of time", "server.html", async (page) => {
  const strip = await page.locator(".heat").boundingBox();
  await page.mouse.move(strip.x + 1, strip.y + 20);
  await page.mouse.down();
  await page.mouse.move(strip.x + strip.width / 2, strip.y + 20, { steps: 5 });
  await page.mouse.up();
  assert.equal(await samples(page), 550);
  assert.ok(!(await names(page)).includes("vfs_write"), "it wrote later");
  await picture(page, "brush");
  await page.getByLabel("time: from, in seconds").fill("5");
  await page.getByLabel("time: to, in seconds").fill("10");
  await page.getByLabel("time: to, in seconds").press("Tab");
  assert.ok(!(await names(page)).includes("parse_value"), "it parsed earlier");
  await page.getByRole("button", { name: "All of the time" }).click();
  assert.equal(await samples(page), 1000);
});

shows("a thread can be looked at alone", "server.html", async (page) => {
  await page.getByRole("button", { name: "writer 102" }).click();
  assert.equal(await samples(page), 400);
  assert.match(page.url(), /threads=/);
  await page.getByRole("button", { name: "Show all threads" }).click();
  assert.equal(await samples(page), 1000);
});

shows("two halves are compared", "server.html", async (page) => {
  await page.getByRole("button", { name: "Compare" }).click();
  assert.deepEqual(await texts(page, ".legend li"), ["less", "same", "more"]);
  const row = (name) => page.locator("tr", { hasText: name }).locator("td.change").first().innerText();
  assert.match(await row("parse_value"), /^−/);
  assert.match(await row("vfs_write"), /^\+/);
  // 50 samples in either half.
  assert.match(await row("tick"), /~$/);
  assert.match(await page.locator("tr", { hasText: "tick" }).locator("td.noise").first().getAttribute("title"), /50 samples against 50/);
  await graph(page).hover({ position: { x: 100, y: 70 } });
  assert.match(await page.getByRole("tooltip").innerText(), /before\s+now\s+change/);
  const colours = async (x) => pixel(page, "canvas.graph", x, 65);
  const [[, , gone], [, , come]] = [await colours(100), await colours(1000)];
  assert.ok(gone > 200 && come < 90, `blue for what is less, orange for what is more: ${gone}, ${come}`);
  await picture(page, "compare");
  await page.reload();
  await page.getByRole("button", { name: "Stop comparing" }).click();
  assert.deepEqual(await texts(page, ".legend li"), ["native", "Rust", "kernel"]);
});

/** The middle of the row of the flame graph in which the server parses or writes. */
const ROW_Y = 65;

shows("a range is compared with the rest of the time, and both are in the link", "server.html", async (page) => {
  await page.getByLabel("time: to, in seconds").fill("2.5");
  await page.getByLabel("time: to, in seconds").press("Tab");
  await page.getByRole("button", { name: "Compare with the rest" }).click();
  // 250 samples of parsing and 25 ticks, beside 250, 400 of writing and 75 ticks.
  assert.match(await page.locator("header").innerText(), /275 samples.*compared with 725 samples/s);
  assert.match(await page.locator(".timeline").innerText(), /before:\s+the rest of the time/);
  assert.match(page.url(), /time=0-25&base=rest/);
  const row = (name) => page.locator("tr", { hasText: name }).locator("td.change").first();
  assert.equal(await row("parse_value").innerText(), "+56.43");
  assert.equal(await row("parse_value").getAttribute("title"), "250 against 250");
  assert.equal(await row("vfs_write").innerText(), "−55.17");
  assert.match(await row("tick").innerText(), /~$/);
  assert.equal(await page.locator(".shade.base").count(), 1, "the rest begins where the range ends");
  await picture(page, "rest");
  await page.getByLabel("compare").selectOption("second");
  // 100 samples a second are a second of CPU time, beside 33.3.
  assert.equal(await row("parse_value").innerText(), "+666.67");
  assert.match(page.url(), /per=second/);
  await graph(page).hover({ position: { x: 100, y: ROW_Y } });
  assert.match(await page.getByRole("tooltip").innerText(), /total\s+333\.33 ms\/s\s+1000\.00 ms\/s\s+\+666\.67/);
  assert.deepEqual((await texts(page, "th.number")).slice(-2), ["self, ms/s", "total, ms/s"]);
  await page.reload();
  assert.equal(await row("parse_value").innerText(), "+666.67");
  await page.getByRole("button", { name: "Stop comparing" }).click();
  assert.equal(await samples(page), 275, "the range is still selected");
});

shows("what chance explains is grey", "server.html", async (page) => {
  await page.goto(`${page.url().split("#")[0]}#time=0-50&base=rest`);
  await page.reload();
  await graph(page).waitFor();
  await settle(page);
  const isGrey = ([red, green, blue]) => Math.max(red, green, blue) - Math.min(red, green, blue) < 10;
  const box = await graph(page).boundingBox();
  // Of the second row, the ticks are the last tenth.
  assert.ok(isGrey(await pixel(page, "canvas.graph", box.width * 0.97, 45)), "50 ticks against 50");
  assert.ok(!isGrey(await pixel(page, "canvas.graph", box.width * 0.2, ROW_Y)), "500 samples against none");
});

shows("binaries are listed, and compared", "server.html", async (page) => {
  await page.getByRole("button", { name: "Binaries" }).click();
  const rows = () => texts(page, ".binaries tbody tr");
  assert.deepEqual((await rows()).map((row) => row.split(/\s+/)), [["60.00%", "100.00%", "server"], ["40.00%", "40.00%", "[kernel]"]]);
  await page.getByRole("button", { name: "[kernel]" }).click();
  assert.equal(await matched(page), 40);
  assert.match(page.url(), /list=binaries/);
  await search(page, "");
  await page.getByRole("button", { name: "Compare" }).click();
  assert.deepEqual((await rows()).map((row) => row.split(/\s+/).slice(2)), [
    ["+88.89", "+88.89", "[kernel]"], ["−88.89", "±0.00", "server"],
  ]);
  await picture(page, "binaries");
});

shows("a function stands between its callers and its callees", "server.html", async (page) => {
  await page.getByRole("button", { name: "serve", exact: true }).click();
  const around = async (side) => page.getByRole("application", { name: side }).getAttribute("aria-label");
  assert.match(await around(/^Callers/), /serve: 900 samples, 100\.00%/);
  await page.getByRole("application", { name: /^Callees/ }).press("ArrowDown");
  assert.match(await around(/^Callees/), /parse_value: 500 samples/);
  await page.getByRole("application", { name: /^Callers/ }).press("ArrowUp");
  assert.match(await around(/^Callers/), /main: 900 samples/);
  await picture(page, "sandwich");
  await page.keyboard.press("Escape");
  assert.equal(await graph(page).count(), 1);
});

shows("boxes are grouped by process, thread, container, trace and span", "server.html", async (page) => {
  for (const [grouping, outermost] of [
    ["process", ["server 100"]],
    ["thread", ["worker 101", "writer 102", "main 100"]],
    ["container", [`container ${"c0ffee".repeat(11).slice(0, 64)}`, "outside any container"]],
    ["trace", ["outside any span", "trace abababababababababababababababab"]],
    ["span", ["outside any span", "span cdcdcdcdcdcdcdcd"]],
  ]) {
    await page.getByLabel("group by").selectOption(grouping);
    await graph(page).focus();
    await page.keyboard.press("Escape");
    const seen = [];
    await page.keyboard.press("ArrowDown");
    for (const _ of outermost) {
      seen.push((await graph(page).getAttribute("aria-label")).replace(/^Flame graph\. (.*): .*$/, "$1"));
      await page.keyboard.press("ArrowRight");
    }
    assert.deepEqual(seen, outermost, grouping);
    await picture(page, `by-${grouping}`);
  }
});

shows("everything works by keyboard", "server.html", async (page) => {
  const spoken = async () => (await graph(page).getAttribute("aria-label")).replace("Flame graph. ", "");
  await graph(page).focus();
  for (const [key, is] of [
    ["ArrowDown", /^main: 1,000 samples, 100\.00%/],
    ["ArrowDown", /^serve: /],
    ["ArrowRight", /^tick: 100 /],
    ["ArrowLeft", /^serve: /],
    ["ArrowDown", /^parse_value: /],
    ["Enter", /^parse_value: /],
    ["Backspace", /^serve: /],
    ["Escape", /^all: /],
  ]) {
    await page.keyboard.press(key);
    assert.match(await spoken(), is, key);
  }
  await page.keyboard.press("i");
  assert.match(page.url(), /root=bottom/);
  await graph(page).focus();
  await page.keyboard.press("ArrowUp");
  assert.match(await spoken(), /^main: /, "the root is at the bottom now");
  await page.keyboard.press("/");
  await page.keyboard.type("tick");
  assert.equal(await matched(page), 10);
  // The first one clears the search, the second one leaves it.
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("Tab");
  assert.notEqual(await page.evaluate(() => document.activeElement.tagName), "BODY");
});

shows("what is selected can be saved", "server.html", async (page) => {
  const save = async (name) => {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name }).click()]);
    const path = kept(download.suggestedFilename());
    await download.saveAs(path);
    return readFile(path, "utf8");
  };
  const folded = (await save("Save .folded")).trim().split("\n").sort();
  assert.deepEqual(folded, [
    "main;serve;parse_value 500",
    "main;serve;write_all;vfs_write_[k] 400",
    "main;tick 100",
  ]);
  await page.getByRole("button", { name: "writer 102" }).click();
  assert.equal((await save("Save .folded")).trim(), "main;serve;write_all;vfs_write_[k] 400");
  assert.match(await save("Save .svg"), /^<svg/);
  await page.goto(pathToFileURL(kept("profile.svg")).href);
  assert.deepEqual((await page.locator("g g title").allTextContents()).map((title) => title.replace(/ \(.*/, "")), [
    "all", "main", "serve", "write_all", "vfs_write",
  ]);
});

const SCREENS = [[1440, 900], [1280, 600], [390, 844]];
for (const [width, height] of SCREENS) {
  /** What is said of the box in a row of the part of a graph that is seen; negative rows are counted from the bottom. */
  const seen = async (page, label, row) => {
    const scroll = page.getByRole("application", { name: label }).locator("xpath=ancestor::*[contains(@class, 'scroll')]");
    await scroll.scrollIntoViewIfNeeded();
    const box = await scroll.boundingBox();
    await page.mouse.move(box.x + 40, row < 0 ? box.y + box.height + row * 20 + 10 : box.y + row * 20 + 10);
    const tip = page.getByRole("tooltip").locator("b");
    return (await tip.count()) > 0 ? tip.innerText() : "nothing";
  };
  const scroll = (page, label, to) =>
    page.getByRole("application", { name: label }).evaluate((graph, to) => {
      const element = graph.closest(".scroll");
      element.scrollTop = to === "top" ? 0 : element.scrollHeight;
    }, to);
  const on = { viewport: { width, height } };
  const screen = `${width}x${height}`;

  shows(`each row can be scrolled to: ${screen}`, "deep.html", async (page) => {
    assert.equal(await seen(page, /^Flame graph/, 0), "all");
    await scroll(page, /^Flame graph/, "bottom");
    assert.equal(await seen(page, /^Flame graph/, -1), "level_119");
    await page.keyboard.press("i");
    assert.equal(await seen(page, /^Flame graph/, -1), "all", "the root is seen at first");
    await picture(page, `flame-${screen}`);
    await scroll(page, /^Flame graph/, "top");
    assert.equal(await seen(page, /^Flame graph/, 0), "level_119");
  }, on);

  shows(`the nearest callers and callees are seen first: ${screen}`, "deep.html", async (page) => {
    await search(page, "/^level_60$/");
    await page.getByRole("button", { name: "level_60", exact: true }).click();
    const rows = async (label, ...numbers) => {
      const names = [];
      for (const number of numbers) names.push(await seen(page, label, number));
      return names;
    };
    assert.deepEqual(await rows(/^Callers/, -1, -2, -3, -4), ["all", "level_60", "level_59", "level_58"]);
    assert.deepEqual(await rows(/^Callees/, 0, 1, 2, 3), ["all", "level_60", "level_61", "level_62"]);
    await picture(page, `sandwich-${screen}`);
    await scroll(page, /^Callers/, "top");
    assert.equal(await seen(page, /^Callers/, 0), "level_0");
    await scroll(page, /^Callees/, "bottom");
    assert.equal(await seen(page, /^Callees/, -1), "level_119");
  }, on);

  for (const [root, row] of [["", 2], ["&root=bottom", -3]]) {
    const hash = `zoom=${[...Array(61).keys()].join(".")}${root}`;
    shows(`what is zoomed to is in sight: ${screen}${root}`, "deep.html", async (page) => {
      assert.equal(await seen(page, /^Flame graph/, row), "level_60");
    }, { ...on, hash });
  }
}

shows("the end of a graph with its root at the bottom stays in place when the window changes", "deep.html", async (page) => {
  await page.keyboard.press("i");
  for (const height of [500, 1100, 700]) {
    await page.setViewportSize({ width: 1000, height });
    await settle(page);
    const { scrollTop, scrollHeight, clientHeight } = await graph(page).evaluate((graph) => {
      const { scrollTop, scrollHeight, clientHeight } = graph.closest(".scroll");
      return { scrollTop, scrollHeight, clientHeight };
    });
    assert.equal(scrollTop, scrollHeight - clientHeight, `${height}`);
  }
});

shows("Esc closes what is open, then clears the search, then undoes the zoom", "deep.html", async (page) => {
  await graph(page).click({ position: { x: 300, y: 50 } });
  await page.keyboard.press("/");
  await page.keyboard.type("level_7");
  const state = async () => ({
    search: await page.getByRole("searchbox").inputValue(),
    isZoomed: /zoom=/.test(page.url()),
    isFiltered: /search=/.test(page.url()),
    hasHelp: await page.getByRole("dialog").isVisible(),
  });
  await graph(page).focus();
  await page.keyboard.press("?");
  assert.deepEqual(await state(), { search: "level_7", isZoomed: true, isFiltered: true, hasHelp: true });
  await page.keyboard.press("Escape");
  assert.deepEqual(await state(), { search: "level_7", isZoomed: true, isFiltered: true, hasHelp: false });
  await page.keyboard.press("Escape");
  assert.deepEqual(await state(), { search: "", isZoomed: true, isFiltered: false, hasHelp: false });
  await page.keyboard.press("Escape");
  assert.deepEqual(await state(), { search: "", isZoomed: false, isFiltered: false, hasHelp: false });
});

shows("Esc in the search clears it, then leaves it", "deep.html", async (page) => {
  await graph(page).click({ position: { x: 300, y: 50 } });
  await page.keyboard.press("/");
  await page.keyboard.type("level_7");
  const isFocused = () => page.getByRole("searchbox").evaluate((box) => box === document.activeElement);
  await page.keyboard.press("Escape");
  assert.equal(await page.getByRole("searchbox").inputValue(), "");
  assert.doesNotMatch(page.url(), /search=/);
  assert.equal(await page.locator(".matched").innerText(), "");
  assert.equal(await isFocused(), true, "another search can be typed");
  await page.keyboard.press("Escape");
  assert.equal(await isFocused(), false);
  assert.match(page.url(), /zoom=/, "the zoom is left alone until the search is left");
  await page.keyboard.press("Escape");
  assert.doesNotMatch(page.url(), /zoom=/);
});

shows("Back returns to what was shown before, step by step", "server.html", async (page) => {
  const path = () => texts(page, "nav button");
  await graph(page).click({ position: { x: 300, y: 30 } });
  await graph(page).click({ position: { x: 300, y: 50 } });
  assert.deepEqual(await path(), ["all", "main", "serve"]);
  await page.getByRole("button", { name: "Call tree" }).click();
  // What is typed is one step.
  await page.getByRole("searchbox").pressSequentially("write");
  await page.goBack();
  assert.equal(await page.getByRole("searchbox").inputValue(), "");
  assert.equal(await page.getByRole("group", { name: /^Call tree/ }).count(), 1);
  await page.goBack();
  assert.equal(await page.getByRole("group", { name: "Table of functions" }).count(), 1);
  assert.deepEqual(await path(), ["all", "main", "serve"]);
  await page.goBack();
  assert.deepEqual(await path(), ["all", "main"]);
  await page.goBack();
  assert.deepEqual(await path(), ["all"]);
  await page.goForward();
  assert.deepEqual(await path(), ["all", "main"]);
  await page.getByRole("button", { name: "vfs_write", exact: true }).click();
  await page.getByRole("application", { name: /^Callers/ }).waitFor();
  await page.goBack();
  await graph(page).waitFor();
  assert.deepEqual(await path(), ["all", "main"]);
});

shows("every profile of a page can be chosen, and what was chosen elsewhere stays", "several.html", async (page) => {
  const choice = page.getByLabel("Profile", { exact: true });
  const header = async () => (await page.locator("header .what p").innerText()).trim();
  assert.deepEqual(await choice.locator("option").allInnerTexts(), ["CPU time", "off-CPU time", "wall time"]);
  assert.match(await header(), /^1,000 samples/);
  await search(page, "write");
  await page.getByRole("button", { name: "serve", exact: true }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Call tree" }).click();
  await choice.selectOption("off-CPU time");
  await page.getByRole("region", { name: "off-CPU time over time" }).waitFor();
  assert.match(await header(), /^250 s of off-CPU time/);
  assert.equal(await page.getByRole("searchbox").inputValue(), "write");
  assert.equal(await page.getByRole("group", { name: /^Call tree/ }).count(), 1);
  assert.match(page.url(), /view=1/);
  await page.reload();
  await graph(page).waitFor();
  assert.match(await header(), /^250 s of off-CPU time/, "it is part of the link");
  await choice.selectOption("wall time");
  await page.getByRole("region", { name: "wall time over time" }).waitFor();
  assert.equal(await page.getByRole("list", { name: "What threads wait for" }).count(), 1);
  await page.goBack();
  await page.getByRole("region", { name: "off-CPU time over time" }).waitFor();
  assert.deepEqual(await violations(page), []);
});

shows("inlined functions can be folded into their callers", "inlined.html", async (page) => {
  const rows = async () => (await texts(page, "section[aria-label=Functions] tbody tr[aria-rowindex]")).map((row) => row.split(/\s+/).slice(0, 3).join(" "));
  assert.deepEqual((await rows()).slice(0, 2), ["50.00% 50.00% ptr::write", "40.00% 40.00% hash"]);
  await page.getByLabel("inlined").selectOption("no standard library");
  const own = ["50.00% 50.00% parse_value", "40.00% 40.00% hash", "10.00% 10.00% tick"];
  assert.deepEqual((await rows()).slice(0, 3), own);
  assert.ok(!(await names(page)).some((name) => name.includes("fold")), "in the middle of a stack, too");
  assert.equal(await samples(page), 1000, "nothing is lost");
  assert.match(page.url(), /inlines=own/);
  await page.reload();
  await graph(page).waitFor();
  assert.deepEqual((await rows()).slice(0, 3), own);
  await page.getByLabel("inlined").selectOption("none");
  assert.deepEqual((await rows()).slice(0, 3), ["50.00% 50.00% parse_value", "40.00% 80.00% serve", "10.00% 10.00% tick"]);
  await page.goBack();
  assert.deepEqual((await rows()).slice(0, 3), own);
});

shows("a page without inlined functions does not offer to fold them, nor another profile", "server.html", async (page) => {
  assert.equal(await page.getByLabel("inlined").count(), 0);
  assert.equal(await page.getByLabel("Profile", { exact: true }).count(), 0);
});

shows("the outcomes take two lines of a phone at most", "server.html", async (page) => {
  const said = page.locator(".outcomes .said");
  const [height, line] = await said.evaluate((said) => [said.getBoundingClientRect().height, parseFloat(getComputedStyle(said).lineHeight)]);
  assert.ok(height <= 2 * line + 1, `${height / line} lines`);
}, { viewport: { width: 390, height: 844 } });

shows("the button of the root says what it does", "server.html", async (page) => {
  await page.getByRole("button", { name: "Put root at bottom" }).click();
  assert.match(page.url(), /root=bottom/);
  await page.getByRole("button", { name: "Put root at top" }).click();
  assert.doesNotMatch(page.url(), /root=/);
});

for (const [width, height] of [[1280, 800], [390, 700]]) {
  shows(`every key stands beside what it does, and the keys fit the window: ${width}x${height}`, "server.html", async (page) => {
    await page.keyboard.press("?");
    const dialog = page.getByRole("dialog");
    const { x, y, width: dialogWidth, height: dialogHeight } = await dialog.boundingBox();
    assert.ok(x >= 0 && y >= 0 && x + dialogWidth <= width && y + dialogHeight <= height);
    const columns = await dialog.locator("dd").evaluateAll((texts) => [...new Set(texts.map((text) => Math.round(text.getBoundingClientRect().x)))]);
    assert.equal(columns.length, 1, `one column of texts: ${columns}`);
    assert.equal(await dialog.evaluate((dialog) => dialog.scrollWidth - dialog.clientWidth), 0);
    assert.deepEqual(await violations(page), []);
    await picture(page, `keys-${width}`);
    await dialog.getByRole("button", { name: "Close" }).click();
    assert.equal(await dialog.isVisible(), false);
  }, { viewport: { width, height } });
}

shows("the ring of the search covers nothing", "server.html", async (page) => {
  await search(page, "write");
  const ring = await page.getByRole("searchbox").evaluate((box) => {
    const { bottom } = box.getBoundingClientRect();
    const { outlineOffset, outlineWidth } = getComputedStyle(box);
    return bottom + Math.max(0, parseFloat(outlineOffset) + parseFloat(outlineWidth));
  });
  for (const below of [page.getByRole("button", { name: "Drop matches" }), page.locator(".matched")]) {
    assert.ok((await below.boundingBox()).y >= ring, `${(await below.boundingBox()).y} from ${ring}`);
  }
});

/** The contrast of two colours, as WCAG has it. */
function contrast(one, other) {
  const light = (colour) => {
    const [red, green, blue] = colour.map((channel) => (channel /= 255) <= 0.03928 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
  return (bright + 0.05) / (dark + 0.05);
}

for (const colorScheme of ["light", "dark"]) {
  shows(`labels on the timeline can be read: ${colorScheme}`, "two.html", async (page) => {
    const [text, back] = await page.locator(".part").first().evaluate((part) => {
      const { color, backgroundColor } = getComputedStyle(part);
      const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      /** What is seen where a colour is painted over those before. */
      const over = (colour) => {
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
      };
      over(getComputedStyle(document.documentElement).getPropertyValue("--heat"));
      const back = over(backgroundColor);
      return [over(color), back];
    });
    assert.ok(contrast(text, back) >= 4.5, `${contrast(text, back)}`);
  }, { colorScheme });
}

shows("the list reaches to the end of a large window", "large.html", async (page) => {
  const end = await page.getByRole("group", { name: "Table of functions" }).evaluate((list) => list.getBoundingClientRect().bottom + scrollY);
  const height = await page.evaluate(() => innerHeight);
  assert.ok(height - end < 80, `${height - end} px are empty`);
  const last = page.locator("tr[aria-rowindex]").last();
  assert.ok((await last.boundingBox()).y >= end - 60, "with rows");
}, { viewport: { width: 1920, height: 2160 } });

shows("it is dark where the system is, or where it is told to be", "server.html", async (page) => {
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await background();
  assert.match(dark, /rgb\((\d|[1-3]\d), /);
  await picture(page, "dark");
  await page.getByLabel("Colours of the page").selectOption("light");
  assert.match(await background(), /rgb\(2\d\d, /);
  await page.reload();
  await graph(page).waitFor();
  assert.match(await background(), /rgb\(2\d\d, /, "it is remembered");
  await page.getByLabel("Colours of the page").selectOption("system");
  assert.equal(await background(), dark);
}, { colorScheme: "dark" });

shows("it fits on a small screen", "server.html", async (page) => {
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390);
  await picture(page, "small");
}, { viewport: { width: 390, height: 800 } });

shows("two recordings are compared from the start", "two.html", async (page) => {
  assert.match(await page.locator("header").innerText(), /compared with/);
  assert.deepEqual(await texts(page, ".part"), ["before.pb.gz", "after.pb.gz"]);
  assert.equal(await page.locator("td.change").first().isVisible(), true);
});

shows("hostile names are text", "hostile.html", async (page) => {
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.equal(await page.locator("img, script + script, iframe").count(), 0);
  const title = "</script><script>globalThis.pwned=1</script>";
  assert.equal(await page.locator("h1").innerText(), title);
  assert.equal(await page.title(), `${title} · Sidewinder`);
  const shown = await names(page);
  for (const name of [title, "<img src=x onerror=\"globalThis.pwned=1\">", "\\\\u{1b}[31m\\u{202e}\\u{0}", "{{document}}<!--", "__proto__"]) {
    assert.ok(shown.includes(name), `${name} in ${shown}`);
  }
  assert.ok(shown.some((name) => name.startsWith("xxxx") && name.length <= 1001), "10,000 characters are cut");
  await search(page, "__proto__");
  assert.ok(await matched(page) > 0);
  await search(page, "");
  await graph(page).hover({ position: { x: 300, y: 30 } });
  await page.getByRole("tooltip").waitFor();
  await page.locator(".outcomes summary").click();
  await picture(page, "hostile");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save .svg" }).click()]);
  const svg = await readFile(await download.path(), "utf8");
  assert.ok(!/<script|<img/.test(svg));
});

shows("100,000 stacks are searched, zoomed, brushed and scrolled", "large.html", async (page) => {
  const whole = await samples(page);
  assert.equal(whole, 60 * 64 * 100);
  /** How long the page is busy with something. Said, not judged: the machine has a part in it. */
  const busy = async (what, act) => {
    const began = await page.evaluate(() => performance.now());
    await act();
    await settle(page);
    console.log(`${what}: ${Math.round(await page.evaluate(() => performance.now()) - began)} ms`);
  };
  await busy("search", () => search(page, "malloc"));
  assert.ok(await matched(page) > 0);
  await busy("zoom", () => graph(page).click({ position: { x: 300, y: 70 } }));
  assert.ok((await texts(page, "nav button")).length > 2);
  await busy("reset", () => page.getByRole("button", { name: "all", exact: true }).click());
  await search(page, "");
  await busy("brush", async () => {
    await page.getByLabel("time: to, in seconds").fill("30");
    await page.getByLabel("time: to, in seconds").press("Tab");
  });
  const half = (await samples(page)) / whole;
  assert.ok(half > 0.45 && half < 0.55, `${half} of ${whole}`);
  const list = page.getByRole("group", { name: "Table of functions" });
  await busy("scroll", () => list.evaluate((element) => (element.scrollTop = element.scrollHeight)));
  const rows = await page.locator("tr[aria-rowindex]").evaluateAll((rows) => rows.map((row) => +row.getAttribute("aria-rowindex")));
  const count = +(await page.locator("table[aria-rowcount]").getAttribute("aria-rowcount"));
  assert.ok(count > 4000 && rows.at(-1) === count && rows.length < 60, `${rows.length} rows to ${rows.at(-1)} of ${count}`);
  await picture(page, "large");
  await busy("call tree", () => page.getByRole("button", { name: "Call tree" }).click());
  await busy("bottom-up", () => page.getByRole("button", { name: "Bottom-up" }).click());
  await busy("open a function's callers", async () => {
    await page.getByRole("group", { name: /^Call tree/ }).focus();
    await page.keyboard.press("ArrowRight");
  });
  assert.ok(await page.locator(".calls tr[aria-level='2']").count() > 0);
  await busy("merge", async () => {
    await page.locator(".calls tr[aria-level='1']").first().click({ button: "right" });
    await page.getByRole("menuitem", { name: /^Merge function/ }).click();
  });
  assert.equal(await page.locator(".transforms li").count(), 1);
});

for (const colorScheme of ["light", "dark"]) {
  for (const hash of ["", "base=0-50&time=50-100", "base=rest&time=20-50&per=second&list=binaries", "function=1"]) {
    shows(`axe finds nothing serious: ${colorScheme} ${hash}`, "server.html", async (page) => {
      assert.deepEqual(await violations(page), []);
    }, { colorScheme, hash });
  }
}
