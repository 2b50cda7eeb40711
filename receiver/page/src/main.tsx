import { render } from "preact";
import { App } from "./App";
import { read } from "./document";
import { begin } from "./live";
import { Recording } from "./recording";
import * as state from "./state";

const root = document.getElementById("app")!;

async function start() {
  const held = document.getElementById("document") as HTMLTemplateElement;
  // A page that holds nothing follows what is profiled.
  const isLive = held.content.textContent === "";
  if (isLive) root.textContent = "Waiting for the profiler to start …";
  const load = async (view: number) => new Recording(await read(held, view));
  state.recording.value = isLive ? await begin() : await load(state.viewOfLink());
  document.title = `${state.recording.value.title} · Sidewinder`;
  state.dress();
  state.link(load);
  root.replaceChildren();
  render(<App />, root);
}

start().catch((error: unknown) => {
  root.textContent = `This page can't show its profile: ${error}`;
});
