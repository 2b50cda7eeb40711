// Names that people can read, the call tree, and what can be done to it. The profile is `languages` of
// `e2e/tests/end_to_end/page/profiles.rs`.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { launch, open, picture, texts } from "./browser.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

/** A test with a page of its own, which must not complain. */
function shows(what, act, options) {
  test(what, async () => {
    const page = await open(browser, "languages.html", options);
    try {
      await act(page);
      assert.deepEqual(page.complaints, []);
    } finally {
      await page.context().close();
    }
  });
}

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
