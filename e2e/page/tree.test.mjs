// Names that people can read, the call tree, and what can be done to it. The profile is `languages` of
// `e2e/tests/end_to_end/page/profiles.rs`.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before } from "node:test";
import { launch, open, picture, testPage, texts, violations } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

const shows = (what, act, options) => testPage(what, () => open(browser, "languages.html", options), act);

const names = (page) => texts(page, "section[aria-label=Functions] td.name button");
const graph = (page) => page.getByRole("application", { name: /^Flame graph/ });

shows("names are short, and full where they are asked for", async (page) => {
  const shown = await names(page);
  assert.deepEqual(shown, [
    "std::regex_match<char, true>", "vfs_write", "std::regex_match<wchar_t, true>", "runtime.mallocgc", "main",
    "Server::serve", "Vec<…>::visit", "Value::visit", "cart.(*Cart[…]).Add",
  ]);
  await graph(page).hover({ position: { x: 100, y: 50 } });
  assert.match(await page.getByRole("tooltip").innerText(), /^app::Server::serve\(app::Request const&\)/, "the tip is full");
  await picture(page, "names-short");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save .folded" }).click()]);
  assert.match(await readFile(await download.path(), "utf8"), /app::Server::serve\(app::Request const&\);bool std::regex_match<char/);
  await page.getByRole("button", { name: "Full names" }).click();
  assert.ok((await names(page)).includes("bool std::regex_match<char, true>(char const*, std::basic_regex<char> const&)"));
  assert.match(page.url(), /names=full/);
  await page.reload();
  await graph(page).waitFor();
  assert.ok((await names(page)).includes("github.com/example/shop/cart.(*Cart[go.shape.int]).Add"));
  await page.locator("body").press("n");
  assert.deepEqual(await names(page), shown);
});

const SMALL = { viewport: { width: 390, height: 844 } };
const WIDE = { viewport: { width: 1440, height: 900 } };
const tree = (page) => page.getByRole("group", { name: /^Call tree/ });
/** The rows of the call tree that are seen: level, total, self, name. */
const rows = (page) => page.locator(".calls tbody tr[aria-level]").evaluateAll((rows) => rows.map((row) => {
  const [total, own, name] = [...row.cells].map((cell) => cell.innerText.replace(/^[▸▾]/, "").trim());
  return `${row.getAttribute("aria-level")} ${parseFloat(total)} ${parseFloat(own)} ${name}`;
}));
const selected = async (page) => (await page.locator(".calls tr[aria-selected=true] td.name").innerText()).replace(/^[▸▾]\s*/, "").trim();
const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};

shows("the call tree opens and closes by keyboard, sorts, and is part of the link", async (page) => {
  await page.getByRole("button", { name: "Call tree" }).click();
  const first = [
    "1 100 0 main",
    "2 90 0 Server::serve",
    "3 40 40 std::regex_match<char, true>",
    "3 40 0 Vec<…>::visit",
    "3 10 10 std::regex_match<wchar_t, true>",
    "2 10 0 cart.(*Cart[…]).Add",
  ];
  assert.deepEqual(await rows(page), first, "what has most of the events is open");
  await tree(page).focus();
  await press(page, "ArrowDown", "ArrowDown", "ArrowDown");
  assert.equal(await selected(page), "Vec<…>::visit");
  await press(page, "*");
  assert.deepEqual((await rows(page)).slice(4, 8), ["4 40 0 Value::visit", "5 40 0 Vec<…>::visit", "6 40 0 Value::visit", "7 40 40 vfs_write"]);
  await press(page, "ArrowRight", "ArrowRight", "ArrowRight");
  const link = page.url();
  assert.match(link, /list=tree/);
  // Each is closed, then left for its caller.
  await press(page, ...Array(8).fill("ArrowLeft"));
  assert.equal(await selected(page), "Server::serve");
  await press(page, "ArrowLeft");
  assert.deepEqual(await rows(page), ["1 100 0 main", "2 90 0 Server::serve", "2 10 0 cart.(*Cart[…]).Add"]);
  await page.goto("about:blank");
  await page.goto(link);
  await tree(page).waitFor();
  assert.equal(await selected(page), "Value::visit", "it is opened up to what was selected");
  await page.getByRole("button", { name: "function and what it calls" }).click();
  assert.deepEqual((await rows(page)).filter((row) => row.startsWith("2")), ["2 90 0 Server::serve", "2 10 0 cart.(*Cart[…]).Add"]);
  await page.getByRole("button", { name: "total" }).click();

  await page.getByRole("button", { name: "Bottom-up" }).click();
  assert.deepEqual(await rows(page), [
    "1 40 40 std::regex_match<char, true>", "1 40 40 vfs_write",
    "1 10 10 std::regex_match<wchar_t, true>", "1 10 10 runtime.mallocgc",
  ]);
  await tree(page).focus();
  await press(page, "End", "ArrowRight", "ArrowRight");
  assert.equal(await selected(page), "cart.(*Cart[…]).Add");
  await press(page, "ArrowRight");
  assert.equal((await rows(page)).at(-1), "3 10 0 main");
  assert.match(page.url(), /list=inverted/);
});

shows("the tree is changed by a menu, and each change is undone", async (page) => {
  const functions = async () => (await names(page)).length;
  const total = async () => parseInt((await page.locator("header b").first().innerText()).replaceAll(",", ""), 10);
  const change = async (name, item) => {
    await page.locator("section[aria-label=Functions] tr", { has: page.getByRole("button", { name, exact: true }) }).click({ button: "right" });
    await page.getByRole("menuitem", { name: item }).click();
  };
  const undo = () => page.locator(".transforms button").last().click();
  await change("Vec<…>::visit", "Collapse recursion");
  await graph(page).focus();
  await press(page, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowDown", "ArrowDown");
  assert.match(await graph(page).getAttribute("aria-label"), /vfs_write: 400/, "two of its levels are left of four");
  await undo();
  await change("std::regex_match<char, true>", /^Merge libregex/);
  assert.equal(await functions(), 7);
  assert.match((await page.locator("section[aria-label=Functions] tbody tr").first().innerText()), /50\.00%\s+90\.00%\s+Server::serve/);
  await change("vfs_write", /^Hide/);
  assert.equal(await total(), 600);
  await change("Server::serve", "Focus on function");
  assert.equal(await total(), 500);
  assert.deepEqual(await texts(page, ".transforms span"), ["libregex.so.1 merged into its callers", "without vfs_write", "only Server::serve"]);
  await page.reload();
  await graph(page).waitFor();
  assert.equal(await total(), 500, "the link has them");
  await page.keyboard.press("Escape");
  assert.equal(await total(), 600);
  await undo();
  await undo();
  assert.deepEqual([await total(), await functions()], [1000, 9]);
  await page.getByRole("searchbox").fill("/REGEX_.*wchar/");
  await page.getByRole("button", { name: "Drop matches" }).click();
  assert.equal(await total(), 900);
  await page.keyboard.press("Escape");
  await change("Value::visit", /^Merge function/);
  assert.deepEqual([await total(), await functions()], [1000, 8]);
});

shows("a call is looked at alone by keyboard, and names are copied in full", async (page) => {
  await page.context().grantPermissions(["clipboard-read"]);
  await graph(page).focus();
  await press(page, "ArrowDown", "ArrowDown", "ArrowRight", "m");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Copy name");
  await press(page, "Enter");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "github.com/example/shop/cart.(*Cart[go.shape.int]).Add");
  await press(page, "m", "ArrowDown", "ArrowDown", "ArrowDown", "Enter");
  assert.deepEqual(await texts(page, ".transforms span"), ["this call of cart.(*Cart[…]).Add"]);
  assert.deepEqual((await names(page)).sort(), ["cart.(*Cart[…]).Add", "runtime.mallocgc"]);

  await press(page, "Escape");
  assert.deepEqual(await texts(page, ".legend button"), ["native", "Rust", "Go", "kernel"]);
  await page.getByLabel("colour by").selectOption("binary");
  assert.deepEqual((await texts(page, ".legend button")).sort(), ["[kernel]", "cart", "libjson.so", "libregex.so.1", "server"]);
  await page.getByLabel("colour by").selectOption("package");
  assert.deepEqual((await texts(page, ".legend button")).sort(), ["alloc", "app", "github.com/example/shop/cart", "json", "kernel", "runtime", "server", "std"]);
  await page.getByRole("button", { name: "std", exact: true }).click();
  assert.equal(await page.locator(".matched").innerText(), "50.00% match");
  assert.match(page.url(), /colour=package/);
});

for (const [colorScheme, size, at] of [["light", "small", SMALL], ["dark", "wide", WIDE]]) {
  shows(`the tree and its menu fit: ${colorScheme}, ${size}`, async (page) => {
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), at.viewport.width);
    await page.locator(".calls tbody tr").nth(1).click({ button: "right" });
    await page.getByRole("menu").waitFor();
    await picture(page, `tree-${colorScheme}-${size}`);
    assert.deepEqual(await violations(page), []);
  }, { ...at, colorScheme, hash: "do=merge:3&do=recursion:4&list=tree&colour=package" });
}
