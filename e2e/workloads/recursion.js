// One chain of functions, the last of which computes: the argument is the number of calls. Runs until it is ended.
'use strict';

const WARM_UP_ROUNDS = 2_000;

function work(rounds) {
  let sum = 0;
  for (let i = 0; i < rounds; i++) sum = (sum * 31 + i) % 1000003;
  return sum;
}

function recurse(left, rounds) {
  return left > 0 ? recurse(left - 1, rounds) + 1 : work(rounds);
}

const calls = Number(process.argv[2]);
// All functions are compiled before the gate opens.
for (let i = 0; i < WARM_UP_ROUNDS; i++) recurse(calls, 1_000);
if (process.env.WORKLOAD_GATE) {
  require('fs').writeSync(1, `{"ready":${process.pid}}\n`);
  require('fs').readSync(0, Buffer.alloc(1));
}
for (;;) recurse(calls, 100_000);
