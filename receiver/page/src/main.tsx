import { render } from "preact";
import { App } from "./App";
import { read } from "./document";
import { Recording } from "./recording";
import * as state from "./state";

const root = document.getElementById("app")!;

async function start() {
  state.recording.value = new Recording(await read(document.getElementById("document") as HTMLTemplateElement));
  document.title = `${state.recording.value.title} · Sidewinder`;
  state.dress();
  state.link();
  root.replaceChildren();
  render(<App />, root);
}

start().catch((error: unknown) => {
  root.textContent = `This page can't show its profile: ${error}`;
});
