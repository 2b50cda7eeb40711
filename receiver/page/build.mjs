// Builds the page: one HTML document with its style and its script, for which its security policy has the hashes.
//
//   node build.mjs FILE

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const [target] = process.argv.slice(2);
const bundle = async (entry) => {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    minify: true,
    format: "iife",
    target: ["chrome111", "firefox115", "safari16.4"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
  });
  // An element's end within it would end it.
  return outputFiles[0].text.trim().replaceAll("</script", "<\\/script").replaceAll("</style", "<\\/style");
};
const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const [page, style, script] = await Promise.all([
  readFile(new URL("src/page.html", import.meta.url), "utf8"),
  bundle(new URL("src/style.css", import.meta.url).pathname),
  bundle(new URL("src/main.tsx", import.meta.url).pathname),
]);
const parts = { style, script, "style-hash": hash(style), "script-hash": hash(script), document: "{{document}}" };
await writeFile(target, page.replaceAll(/\{\{([a-z-]+)\}\}/g, (_, name) => parts[name]));
