// What other viewers' own importers make of our files, as the test wrote them: ten seconds of a server at 100 Hz, and a
// recording of a program.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { kept, launch, written } from "./browser.mjs";

const module = (path) => fileURLToPath(new URL(`node_modules/${path}`, import.meta.url));

let browser;
before(async () => (browser = await launch()));
after(() => browser.close());

for (const [name, shown] of [
  ["server.speedscope.json", /server 100 \/ worker 101/],
  ["ladder.speedscope.json", /ladder \d+ \/ ladder \d+/],
]) {
  test(`speedscope opens ${name}`, async () => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
    const complaints = [];
    page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
    page.on("dialog", (dialog) => { complaints.push(dialog.message()); dialog.dismiss(); });
    await page.goto(pathToFileURL(module("speedscope/dist/release/index.html")).href);
    await page.locator("input[type=file]").setInputFiles(written(name));
    await page.waitForFunction((pattern) => new RegExp(pattern).test(document.body.innerText + document.title), shown.source);
    await page.screenshot({ path: kept(`${name}.png`) });
    assert.deepEqual(complaints, []);
    await page.close();
  });
}

/** Its daemon has half a second to start in, which a busy machine may not give it. It asks to be run again then. */
function loaded(load, triesLeft = 10) {
  try {
    return load();
  } catch (error) {
    const late = /did not become ready[^]*may still be running as pid (\d+)/.exec(error.stderr);
    if (!late || triesLeft === 0) throw error;
    try {
      process.kill(+late[1]);
    } catch {
      // It has ended by itself.
    }
    return loaded(load, triesLeft - 1);
  }
}

/** What the Firefox Profiler's own code says of a thread's samples. */
function firefox(name) {
  const profiler = (...command) => execFileSync(process.execPath, [module("@firefox-devtools/profiler-cli/dist/profiler-cli.js"), ...command], {
    encoding: "utf8",
    env: { ...process.env, HOME: kept(""), PROFILER_CLI_SESSION_DIR: kept("firefox") },
  });
  const said = loaded(() => profiler("load", written(name)));
  try {
    return said + profiler("profile", "info") + profiler("thread", "samples", "--include-idle");
  } finally {
    profiler("stop");
  }
}

test("the Firefox Profiler opens server.firefox.json", () => {
  const said = firefox("server.firefox.json");
  for (const thread of ["main", "worker", "writer"]) assert.match(said, new RegExp(`\\b${thread}\\b`), said);
  assert.match(said, /f-\d+\. serve - /, said);
});

test("the Firefox Profiler opens ladder.firefox.json", () => {
  const said = firefox("ladder.firefox.json");
  for (const name of ["main", "climb"]) assert.match(said, new RegExp(`${name} - total: \\d+ \\(([5-9]\\d|100)\\b`), said);
});
