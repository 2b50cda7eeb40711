// Matches regular expressions that V8 compiles, for as many seconds as it is told.
'use strict';

const text = 'lorem ipsum dolor sit amet 12345 consectetur adipiscing elit '.repeat(400);

function scan() {
  let length = 0;
  for (const match of text.matchAll(/([a-z]+)\s+([a-z]+)(?=\s+\d+)/g)) {
    length += match[1].length;
  }
  return length;
}

let sum = 0;
const end = Date.now() + 1000 * Number(process.argv[2]);
while (Date.now() < end) {
  sum += scan();
}
