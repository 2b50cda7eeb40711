"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = id => document.getElementById(id);
  const ROW_PX = 20;
  const MIN_PX = 0.6;
  const ROWS_STEP = 200;

  // ---- The tree. Node 0 is "all"; nodes stand before what they called. ----

  const count = data.nodes.depth.length + 1;
  const label = new Int32Array(count).fill(-1);
  const depth = new Int32Array(count);
  const parent = new Int32Array(count).fill(-1);
  const own = new Float64Array(count);
  const total = new Float64Array(count);
  const end = new Int32Array(count);    // one past the last node below
  const start = new Float64Array(count); // events to the left

  const open = [0];
  for (let node = 1; node < count; node++) {
    depth[node] = data.nodes.depth[node - 1] + 1;
    label[node] = data.nodes.label[node - 1];
    own[node] = data.nodes.own[node - 1];
    parent[node] = open[depth[node] - 1];
    open[depth[node]] = node;
  }
  for (let node = count - 1; node >= 0; node--) {
    total[node] += own[node];
    end[node] = Math.max(end[node], node + 1);
    if (node > 0) {
      total[parent[node]] += total[node];
      end[parent[node]] = Math.max(end[parent[node]], end[node]);
    }
  }
  const next = new Float64Array(count); // where the next callee begins
  for (let node = 1; node < count; node++) {
    const above = parent[node];
    start[node] = start[above] + next[above];
    next[above] += total[node];
  }
  delete data.nodes;

  const { name: names, binary: binaries, kind: kinds } = data.labels;
  const nameOf = node => (node === 0 ? "all" : names[label[node]]);
  const kindOf = node => (node === 0 ? -1 : kinds[label[node]]);

  // ---- Functions: a label's own and total events, recursion counted once. ----

  const ownOf = new Float64Array(names.length);
  const totalOf = new Float64Array(names.length);
  {
    const onPath = new Int32Array(names.length);
    const path = [];
    for (let node = 1; node < count; node++) {
      while (path.length >= depth[node]) onPath[path.pop()]--;
      const at = label[node];
      ownOf[at] += own[node];
      if (onPath[at]++ === 0) totalOf[at] += total[node];
      path.push(at);
    }
  }

  // ---- Words ----

  const whole = new Intl.NumberFormat("en");
  const percent = (part, of) => (of > 0 ? (100 * part / of).toFixed(2) : "0.00") + "%";
  const seconds = events => {
    const value = events * data.period_ns / 1e9;
    return value >= 10 ? value.toFixed(1) + " s" : value >= 0.01 ? value.toFixed(3) + " s" : (value * 1e3).toFixed(2) + " ms";
  };
  const make = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const rgb = ([r, g, b]) => `rgb(${r},${g},${b})`;

  element("title").textContent = data.title;
  {
    const facts = element("facts");
    facts.append(make("b", "", whole.format(total[0])), ` samples · ${seconds(total[0])} of ${data.measure === "cpu" ? "CPU" : data.measure} time · `);
    facts.append(`${data.rate_hz} Hz for ${(data.duration_ms / 1e3).toFixed(1)} s · `);
    const began = make("time", "", new Date(data.start_unix_ms).toLocaleString());
    began.dateTime = new Date(data.start_unix_ms).toISOString();
    facts.append(began);
  }

  // ---- Outcomes ----

  {
    const occurred = data.outcomes.filter(outcome => outcome.count > 0);
    const sum = severity => occurred.reduce((all, outcome) => all + (!severity || outcome.severity === severity ? outcome.count : 0), 0);
    const [complete, aside, cut, lost] = ["complete", "aside", "cut", "lost"].map(sum);
    const wanted = complete + cut + lost;
    const parts = [`${percent(complete, wanted)} of the samples wanted are complete`];
    if (cut) parts.push(`${whole.format(cut)} have a cut stack`);
    if (lost) parts.push(`${whole.format(lost)} are lost`);
    if (aside) parts.push(`${whole.format(aside)} interrupts were not wanted`);
    element("outcome-text").textContent = wanted + aside ? parts.join(" · ") : "No interrupts were counted";
    element("outcomes").className = lost ? "lost" : cut ? "cut" : "";
    for (const [severity, events] of Object.entries({ complete, cut, lost })) {
      if (!events) continue;
      const part = make("i", severity);
      part.style.width = 100 * events / wanted + "%";
      element("outcome-bar").append(part);
    }
    const order = ["complete", "cut", "lost", "aside"];
    const meaning = { complete: "the whole stack is there", cut: "stack cut", lost: "lost", aside: "not wanted" };
    occurred.sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity) || b.count - a.count);
    for (const outcome of occurred) {
      const row = make("tr");
      const cell = make("td");
      cell.append(make("span", "dot " + outcome.severity), outcome.name);
      row.append(cell, make("td", "number", whole.format(outcome.count)), make("td", "number", percent(outcome.count, sum())));
      row.append(make("td", "", meaning[outcome.severity] + (outcome.help ? ": " + outcome.help : "")));
      element("outcome-rows").append(row);
    }
  }

  // ---- Legend ----

  for (const [index, kind] of data.kinds.entries()) {
    if (!kinds.includes(index)) continue;
    const entry = make("li");
    const swatch = make("i");
    swatch.style.background = rgb(kind.colour);
    entry.append(swatch, kind.label);
    element("legend").append(entry);
  }

  // ---- Flame graph ----

  const canvas = element("graph");
  const scroll = element("scroll");
  const extent = element("extent");
  const tip = element("tip");
  const pen = canvas.getContext("2d");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  let zoomed = 0;
  let selected = 0;
  let hovered = -1;
  let rootAtTop = true;
  let matches = null; // per label, or null without a search
  let widthPx = 0;
  let viewPx = 0;
  let rows = 1;
  let charPx = 7;
  let theme = {};
  let isDrawDue = false;

  const shades = names.map((name, at) => {
    if (kinds[at] < 0) return null;
    let hash = 0x811c9dc5;
    for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
    const factor = (92 + ((hash >>> 8) % 15)) / 100;
    return rgb(data.kinds[kinds[at]].colour.map(channel => Math.min(255, Math.round(channel * factor))));
  });

  const matched = node => matches !== null && node > 0 && matches[label[node]] === 1;
  const rowTop = level => (rootAtTop ? level : rows - 1 - level) * ROW_PX;

  function leftAndWidth(node) {
    // What leads to the zoomed node spans the whole width.
    if (node <= zoomed && end[node] > zoomed) return [0, widthPx];
    const scale = widthPx / (total[zoomed] || 1);
    return [(start[node] - start[zoomed]) * scale, total[node] * scale];
  }

  function deepest() {
    let most = depth[zoomed];
    const least = total[zoomed] * MIN_PX / Math.max(widthPx, 1);
    for (let node = zoomed; node < end[zoomed];) {
      if (total[node] < least) { node = end[node]; continue; }
      if (depth[node] > most) most = depth[node];
      node++;
    }
    return most;
  }

  function layOut() {
    widthPx = Math.max(scroll.clientWidth - 24, 50);
    rows = deepest() + 1;
    const heightPx = rows * ROW_PX;
    extent.style.height = heightPx + "px";
    viewPx = Math.min(heightPx, Math.max(Math.round(innerHeight * .68) - 16, ROW_PX));
    const ratio = devicePixelRatio || 1;
    canvas.style.width = widthPx + "px";
    canvas.style.height = viewPx + "px";
    canvas.width = Math.round(widthPx * ratio);
    canvas.height = Math.round(viewPx * ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(name).trim();
    theme = { paper: colour("--panel"), ink: colour("--ink"), match: colour("--match"), process: colour("--process"), font: "12px " + colour("--mono") };
    pen.font = theme.font;
    charPx = pen.measureText("0").width || 7;
    draw();
  }

  function draw() {
    if (isDrawDue) return;
    isDrawDue = true;
    requestAnimationFrame(() => { isDrawDue = false; paint(); });
  }

  function paint() {
    const ratio = devicePixelRatio || 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = theme.paper;
    pen.fillRect(0, 0, widthPx, viewPx);
    pen.font = theme.font;
    pen.textBaseline = "middle";
    const top = extentTop();
    for (let node = zoomed; node >= 0; node = parent[node]) paintNode(node, top, node !== zoomed);
    const least = total[zoomed] * MIN_PX / widthPx;
    for (let node = zoomed + 1; node < end[zoomed];) {
      if (total[node] < least || depth[node] >= rows) { node = end[node]; continue; }
      paintNode(node, top, false);
      node++;
    }
    const marked = document.activeElement === canvas ? [selected, hovered] : [hovered];
    for (const node of marked) if (node >= 0 && visible(node)) outline(node, top);
  }

  function paintNode(node, top, isAbove) {
    const y = rowTop(depth[node]) - top;
    if (y + ROW_PX < 0 || y > viewPx) return;
    const [x, width] = leftAndWidth(node);
    const isDim = (matches !== null && !matched(node)) || isAbove;
    pen.globalAlpha = isDim ? (dark.matches ? .32 : .38) : dark.matches ? .9 : 1;
    pen.fillStyle = (node > 0 && shades[label[node]]) || theme.process;
    const gap = width > 3 ? 1 : 0;
    pen.fillRect(x, y, Math.max(width - gap, MIN_PX), ROW_PX - 1);
    if (matched(node)) {
      pen.fillStyle = theme.match;
      pen.fillRect(x, y + ROW_PX - 4, Math.max(width - gap, MIN_PX), 3);
    }
    const room = Math.floor((width - 9) / charPx);
    if (room >= 2) {
      const name = nameOf(node);
      const text = name.length > room ? name.slice(0, room - 1) + "…" : name;
      pen.globalAlpha = isDim && dark.matches ? .8 : 1;
      pen.fillStyle = isDim ? theme.ink : "#1b1a1e";
      pen.fillText(text, x + 4, y + ROW_PX / 2 - .5, width - 8);
    }
    pen.globalAlpha = 1;
  }

  function outline(node, top) {
    const [x, width] = leftAndWidth(node);
    pen.strokeStyle = theme.ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(x + .75, rowTop(depth[node]) - top + .75, Math.max(width - 2.5, 1), ROW_PX - 2.5);
  }

  /** The first pixel row of the picture that the canvas shows. */
  function extentTop() {
    return Math.max(0, Math.min(scroll.scrollTop, rows * ROW_PX - viewPx));
  }

  function visible(node) {
    return (node >= zoomed && node < end[zoomed]) || (node < zoomed && end[node] > zoomed);
  }

  function nodeAt(x, y) {
    const row = Math.floor((y + extentTop()) / ROW_PX);
    const level = rootAtTop ? row : rows - 1 - row;
    if (level < 0 || level >= rows || x < 0 || x > widthPx) return -1;
    if (level <= depth[zoomed]) {
      let node = zoomed;
      while (depth[node] > level) node = parent[node];
      return node;
    }
    const at = start[zoomed] + x * total[zoomed] / widthPx;
    for (let node = zoomed + 1; node < end[zoomed];) {
      if (at >= start[node] + total[node]) { node = end[node]; continue; }
      if (at < start[node]) return -1;
      if (depth[node] === level) return node;
      node++;
    }
    return -1;
  }

  /** Keeps what is shown in the address, so that a reload or a link shows it again. */
  function remember() {
    const state = new URLSearchParams();
    if (element("search").value) state.set("search", element("search").value);
    if (zoomed > 0) state.set("zoom", zoomed);
    if (!rootAtTop) state.set("root", "bottom");
    try { history.replaceState(null, "", "#" + state); } catch { /* some browsers forbid it for files */ }
  }

  function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    element("search").value = state.get("search") ?? "";
    rootAtTop = state.get("root") !== "bottom";
    const node = Number(state.get("zoom"));
    search();
    zoom(Number.isInteger(node) && node > 0 && node < count ? node : 0);
  }

  function zoom(node) {
    zoomed = node;
    selected = node;
    element("reset").disabled = node === 0;
    layOut();
    scroll.scrollTop = rootAtTop ? 0 : scroll.scrollHeight;
    showPath();
    speak();
    remember();
  }

  function showPath() {
    const steps = [];
    for (let node = zoomed; node >= 0; node = parent[node]) steps.unshift(node);
    const shown = steps.length > 6 ? [steps[0], ...steps.slice(-4)] : steps;
    const path = element("path");
    path.replaceChildren();
    for (const [position, node] of shown.entries()) {
      if (position > 0) path.append(steps.length > 6 && position === 1 ? "… ›" : "›");
      const step = make("button", "", nameOf(node).slice(0, 200));
      step.type = "button";
      step.addEventListener("click", () => zoom(node));
      path.append(step);
    }
  }

  function describe(node) {
    const share = `${whole.format(total[node])} samples, ${percent(total[node], total[0])}`;
    return `${nameOf(node).slice(0, 300)}: ${share}`;
  }

  function speak() {
    element("spoken").textContent = describe(selected);
    canvas.setAttribute("aria-label", "Flame graph. " + describe(selected));
  }

  function showTip(node, x, y) {
    if (node < 0) { tip.hidden = true; return; }
    const where = node > 0 ? [kindOf(node) < 0 ? "process" : data.kinds[kindOf(node)].label, binaries[label[node]]] : [];
    const list = make("dl");
    for (const [term, events] of [["total", total[node]], ["self", own[node]]]) {
      list.append(make("dt", "", term), make("dd", "", percent(events, total[0])), make("dd", "", seconds(events)), make("dd", "", whole.format(events) + " samples"));
    }
    if (zoomed > 0 && node >= zoomed) {
      list.append(make("dt", "", "of zoom"), make("dd", "", percent(total[node], total[zoomed])), make("dd"), make("dd"));
    }
    tip.replaceChildren(make("b", "", nameOf(node)), make("div", "where", where.filter(Boolean).join(" · ")), list);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 12) : y + 18) + "px";
  }

  canvas.addEventListener("mousemove", event => {
    const box = canvas.getBoundingClientRect();
    const node = nodeAt(event.clientX - box.left, event.clientY - box.top);
    showTip(node, event.clientX, event.clientY);
    if (node !== hovered) { hovered = node; draw(); }
  });
  canvas.addEventListener("mouseleave", () => { hovered = -1; tip.hidden = true; draw(); });
  canvas.addEventListener("click", event => {
    const box = canvas.getBoundingClientRect();
    const node = nodeAt(event.clientX - box.left, event.clientY - box.top);
    if (node >= 0) { tip.hidden = true; zoom(node); }
  });
  scroll.addEventListener("scroll", () => { tip.hidden = true; draw(); });

  // ---- Keyboard ----

  function sibling(node, step) {
    if (node === zoomed || parent[node] < 0) return node;
    if (step > 0) return end[node] < end[parent[node]] ? end[node] : node;
    let at = parent[node] + 1;
    if (at === node) return node;
    while (end[at] !== node) at = end[at];
    return at;
  }
  const callee = node => (end[node] > node + 1 && depth[node] + 1 < rows ? node + 1 : node);

  function select(node) {
    if (node < 0 || !visible(node)) return;
    selected = node;
    const y = rowTop(depth[node]);
    if (y < scroll.scrollTop) scroll.scrollTop = y;
    else if (y + ROW_PX > scroll.scrollTop + viewPx) scroll.scrollTop = y + ROW_PX - viewPx;
    const box = canvas.getBoundingClientRect();
    showTip(node, box.left + leftAndWidth(node)[0], box.top + y - extentTop() + 8);
    speak();
    draw();
  }

  function flip() {
    rootAtTop = !rootAtTop;
    layOut();
    scroll.scrollTop = rootAtTop ? 0 : scroll.scrollHeight;
    remember();
  }

  canvas.addEventListener("keydown", event => {
    const moves = {
      ArrowLeft: () => select(sibling(selected, -1)),
      ArrowRight: () => select(sibling(selected, 1)),
      ArrowUp: () => select(rootAtTop ? parent[selected] : callee(selected)),
      ArrowDown: () => select(rootAtTop ? callee(selected) : parent[selected]),
      Enter: () => zoom(selected),
      Backspace: () => zoom(Math.max(parent[zoomed], 0)),
    };
    const move = moves[event.key];
    if (move && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); move(); }
  });
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", () => { tip.hidden = true; draw(); });

  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target === element("search");
    if (event.key === "Escape") {
      if (isTyping) { element("search").value = ""; search(); remember(); canvas.focus({ preventScroll: true }); }
      else { tip.hidden = true; zoom(0); }
    } else if (event.key === "Enter" && isTyping) {
      canvas.focus({ preventScroll: true });
    } else if (event.key === "/" && !isTyping) {
      event.preventDefault();
      element("search").focus();
      element("search").select();
    } else if (event.key === "i" && !isTyping) {
      flip();
    }
  });
  element("reset").addEventListener("click", () => zoom(0));
  element("flip").addEventListener("click", flip);

  // ---- Search ----

  /** A test of names: `/pattern/` is a regular expression, anything else a part of the name. */
  function matcher(query) {
    const pattern = /^\/(.+)\/$/.exec(query);
    if (pattern) {
      try {
        const expression = new RegExp(pattern[1], "i");
        return name => expression.test(name);
      } catch { /* half typed: taken as it stands */ }
    }
    const part = query.toLowerCase();
    return name => name.toLowerCase().includes(part);
  }

  function search() {
    const query = element("search").value;
    matches = null;
    let text = "";
    if (query !== "") {
      const isMatch = matcher(query);
      matches = Uint8Array.from(names, name => (isMatch(name) ? 1 : 0));
      let events = 0;
      for (let node = 1; node < count;) {
        if (!matched(node)) { node++; continue; }
        events += total[node];
        node = end[node]; // what lies below is counted already
      }
      text = `${percent(events, total[0])} match`;
    }
    element("matched").textContent = text;
    draw();
    listFunctions(ROWS_STEP);
  }
  let searchTimer = 0;
  element("search").addEventListener("input", () => {
    clearTimeout(searchTimer);
    searchTimer = setTimeout(() => { search(); remember(); }, names.length > 5000 ? 120 : 0);
  });

  // ---- Table of functions ----

  const busy = [...names.keys()].filter(at => kinds[at] >= 0);
  let sortedBy = "own";
  let isDescending = true;
  const orders = {
    own: (a, b) => ownOf[a] - ownOf[b] || totalOf[a] - totalOf[b],
    total: (a, b) => totalOf[a] - totalOf[b] || ownOf[a] - ownOf[b],
    name: (a, b) => (names[a] < names[b] ? -1 : names[a] > names[b] ? 1 : 0),
    binary: (a, b) => (binaries[a] < binaries[b] ? -1 : binaries[a] > binaries[b] ? 1 : ownOf[b] - ownOf[a]),
  };

  function sortFunctions() {
    const order = orders[sortedBy];
    busy.sort(isDescending ? (a, b) => order(b, a) : order);
    for (const head of document.querySelectorAll("#functions th")) {
      const isSorted = head.firstElementChild.dataset.by === sortedBy;
      if (isSorted) head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    listFunctions(ROWS_STEP);
  }

  function listFunctions(limit) {
    const found = matches === null ? busy : busy.filter(at => matches[at] === 1);
    const list = document.createDocumentFragment();
    for (const at of found.slice(0, limit)) {
      const row = make("tr", matches === null ? "" : "match");
      for (const events of [ownOf[at], totalOf[at]]) {
        const cell = make("td", "number", percent(events, total[0]));
        cell.style.setProperty("--part", total[0] ? 100 * events / total[0] : 0);
        cell.title = `${whole.format(events)} samples, ${seconds(events)}`;
        row.append(cell);
      }
      const name = make("td", "name");
      const swatch = make("i");
      swatch.style.background = shades[at];
      swatch.title = data.kinds[kinds[at]].label;
      const find = make("button", "", names[at].slice(0, 1000));
      find.type = "button";
      find.title = names[at].slice(0, 1000);
      find.addEventListener("click", () => {
        element("search").value = names[at];
        search();
        remember();
        scrollTo({ top: 0, behavior: "smooth" });
      });
      name.append(swatch, find);
      row.append(name, make("td", "binary", binaries[at]));
      list.append(row);
    }
    element("function-rows").replaceChildren(list);
    const more = element("more");
    more.hidden = found.length <= limit;
    more.textContent = `Show ${whole.format(Math.min(found.length - limit, 1000))} more of ${whole.format(found.length)}`;
    more.onclick = () => listFunctions(limit + 1000);
  }
  for (const head of document.querySelectorAll("#functions th button")) {
    head.addEventListener("click", () => {
      const by = head.dataset.by;
      isDescending = by === sortedBy ? !isDescending : by === "own" || by === "total";
      sortedBy = by;
      sortFunctions();
    });
  }

  addEventListener("resize", layOut);
  dark.addEventListener("change", layOut);
  sortFunctions();
  recall();
})();
