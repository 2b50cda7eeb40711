// Runs a chain of functions, on the main thread and on a worker, for as many seconds as it is told. Each function has its own
// line, and calls the next one in another. Most of the time both threads sleep: several of these programs run at a time.
'use strict';

const { Worker, isMainThread, workerData } = require('worker_threads');

const { performance } = require('perf_hooks');

const never = new Int32Array(new SharedArrayBuffer(4));
let sink = 0;
let keep = [];

function short(value) {
  return (value * 31 + 7) % 1000003;
}

const allocate = (count) => {
  const made = [];
  for (let i = 0; i < count; i++) {
    made.push({ number: i, text: 'item ' + i, inner: [i, i + 1] });
  }
  return made;
};

function work(rounds) {
  let sum = 0;
  for (let i = 0; i < rounds; i++) {
    sum = short(sum + i);
  }
  return sum;
}

function sort(count) {
  const numbers = Array.from({ length: count }, (_, i) => (i * 7919) % 1009);
  numbers.sort(function compareNumbers(a, b) {
    return work(20) >= 0 ? a - b : 0;
  });
  return numbers[0];
}

function recurse(depth) {
  if (depth > 0) {
    return recurse(depth - 1) + 1;
  }
  sink += work(4000);
  sink += sort(40);
  keep = allocate(200);
  return 0;
}

const größe = (depth) => {
  return recurse(depth) + keep.length;
};

class Steps {
  constructor(depth) {
    this.depth = depth;
  }

  take() {
    return größe(this.depth) + 1;
  }

  get taken() {
    return this.take() + 1;
  }
}

function second(steps) {
  return [steps].map(function eachStep(step) {
    return step.taken;
  })[0];
}

function first(until) {
  let rounds = 0;
  while (Date.now() < until) {
    const started = performance.now();
    rounds += second(new Steps(30));
    Atomics.wait(never, 0, 0, 6 * (performance.now() - started));
  }
  return rounds;
}

const seconds = Number(isMainThread ? process.argv[2] : workerData);
if (isMainThread) {
  new Worker(__filename, { workerData: seconds });
}
first(Date.now() + seconds * 1000);
