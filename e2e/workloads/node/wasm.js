// Runs a chain of functions of WebAssembly, which call JavaScript and are called by it, for as many seconds as it is told. First it
// prints the URL that V8 gives the module.
'use strict';

// The module, section by section: https://webassembly.github.io/spec/core/binary/modules.html
const I32 = 0x7f;
const number = (value) => (value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...number(value >>> 7)]);
const sized = (bytes) => [...number(bytes.length), ...bytes];
const text = (string) => sized([...Buffer.from(string)]);
const list = (items) => [...number(items.length), ...items.flat()];
const section = (kind, bytes) => [kind, ...sized(bytes)];

const get = (local) => [0x20, local];
const constant = (value) => [0x41, ...number(value)];
const call = (name) => [0x10, FUNCTIONS.indexOf(name)];
const ADD = 0x6a;
const END = 0x0b;

// The first are imported, the others are declared in this order. One has no name.
const IMPORTED = ['back', 'url', 'step'];
const FUNCTIONS = [...IMPORTED, 'first', 'second', 'descend', 'work', '', 'again', 'turn'];
const UNNAMED = 7;

// sum = 1; do { sum = sum * 31 + rounds } while (--rounds); return sum
const loop = [
  ...constant(1), 0x21, 1, 0x03, 0x40,
  ...get(1), ...constant(31), 0x6c, ...get(0), ADD, 0x21, 1,
  ...get(0), ...constant(1), 0x6b, 0x22, 0, 0x0d, 0, END,
  ...get(1),
];
const CODE = {
  first: [...call('url'), 0x1a, ...get(0), ...call('second'), ...constant(1), ADD],
  second: [...get(0), ...call('descend'), ...constant(1), ADD],
  // if (depth) return descend(depth - 1) + 1; else return work() + unnamed() + back()
  descend: [
    ...get(0), 0x04, I32,
    ...get(0), ...constant(1), 0x6b, ...call('descend'), ...constant(1), ADD,
    0x05,
    ...constant(20000), ...call('work'), ...constant(20000), 0x10, UNNAMED, ADD, ...constant(20000), ...call('back'), ADD,
    END,
  ],
  work: loop,
  '': loop,
  again: [...get(0), ...call('work'), ...constant(1), ADD],
  // while (step()); return 0
  turn: [0x03, 0x40, ...call('step'), 0x0d, 0, END, ...constant(0)],
};
const body = (code) => sized([...list([[1, I32]]), ...code, END]);
const name = (function_, index) => (function_ ? [[...number(index), ...text(function_)]] : []);
const names = [1, ...sized(list(FUNCTIONS.flatMap(name)))];
const moduleName = [0, ...sized(text('chain'))];
const module_ = new WebAssembly.Module(new Uint8Array([
  ...Buffer.from('\0asm'), 1, 0, 0, 0,
  // Of a number to a number, and of nothing to a number.
  ...section(1, list([[0x60, ...list([I32]), ...list([I32])], [0x60, ...list([]), ...list([I32])]])),
  // A memory among the imports: not all of them are functions.
  ...section(2, list([
    [...text('js'), ...text('back'), 0, 0],
    [...text('js'), ...text('memory'), 2, 1, 1, 2],
    [...text('js'), ...text('url'), 0, 1],
    [...text('js'), ...text('step'), 0, 1],
  ])),
  ...section(3, list(FUNCTIONS.slice(IMPORTED.length).map(() => 0))),
  ...section(7, list(['first', 'again', 'turn'].map((export_) => [...text(export_), 0, FUNCTIONS.indexOf(export_)]))),
  ...section(10, list(FUNCTIONS.slice(IMPORTED.length).map((function_) => body(CODE[function_])))),
  ...section(0, [...text('name'), ...moduleName, ...names]),
]));

let isUrlKnown = false;
function url() {
  if (!isUrlKnown) {
    isUrlKnown = true;
    console.log(/wasm:\/\/[^:\s]*/.exec(new Error().stack)[0]);
  }
  return 0;
}

function back(rounds) {
  return instance.exports.again(rounds);
}

// Most of the time it sleeps: several of these programs run at a time.
function step() {
  for (let i = 0; i < 20; i++) {
    instance.exports.first(8);
  }
  Atomics.wait(never, 0, 0, 10);
  return Date.now() < end ? 1 : 0;
}

const never = new Int32Array(new SharedArrayBuffer(4));
const memory = new WebAssembly.Memory({ initial: 1, maximum: 2 });
const instance = new WebAssembly.Instance(module_, { js: { back, memory, step, url } });
const end = Date.now() + 1000 * Number(process.argv[2]);
// One call, in which the function is compiled again.
instance.exports.turn(0);
