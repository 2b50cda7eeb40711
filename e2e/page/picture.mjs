// Takes a picture of a page, as for the README.
//
//   node picture.mjs PAGE.html PICTURE.png [WHAT A LINK ASKS FOR]

import { pathToFileURL } from "node:url";
import { launch, settle } from "./browser.mjs";

const [page, picture, hash = ""] = process.argv.slice(2);
const browser = await launch();
const tab = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme: "light" });
await tab.goto(`${pathToFileURL(page).href}#${hash}`);
await tab.locator("canvas.graph").first().waitFor();
await settle(tab);
await tab.screenshot({ path: picture });
await browser.close();
