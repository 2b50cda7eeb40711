// JavaScript and an addon (addon.cc) that call each other, three times: ADDON SECONDS.
'use strict';

const { call } = require(process.argv[2]);

const DEPTH = 2;
let sink = 0;

function compute() {
  let sum = 0;
  for (let i = 0; i < 100_000; i++) sum = (sum * 31 + i) % 1000003;
  return sum;
}

function outer(depth) {
  return call(inner, depth) + 1;
}

function inner(depth) {
  return (depth > 0 ? outer(depth - 1) : compute()) + 1;
}

function serve(until) {
  while (Date.now() < until) sink += outer(DEPTH);
}

serve(Date.now() + Number(process.argv[3]) * 1000);
