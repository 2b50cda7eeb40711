// Real programs of npm, each for some seconds: node npm.js NAME SECONDS, in a folder that they may write to. NODE_PATH names
// the packages.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const [, , name, seconds] = process.argv;
const deadline = Date.now() + Number(seconds) * 1000;
const isOver = () => Date.now() >= deadline;
const packages = process.env.NODE_PATH;

// A module with types, classes, generics and closures, for a compiler to work on.
const source = (number) => `
export interface Item${number}<T> { id: number; value: T; tags?: ReadonlyArray<string>; next?: Item${number}<T> }
export type Keys${number}<T> = { [K in keyof T as K extends string ? \`get\${Capitalize<K>}\` : never]: () => T[K] };
export class Store${number}<T extends { id: number }> {
  #items = new Map<number, T>();
  add(...items: T[]): this { for (const item of items) this.#items.set(item.id, item); return this; }
  async find(wanted: (item: T) => boolean): Promise<T | undefined> { return [...this.#items.values()].find(wanted); }
  group<K extends keyof T>(key: K): Map<T[K], T[]> {
    return [...this.#items.values()].reduce((groups, item) => groups.set(item[key], [...(groups.get(item[key]) ?? []), item]),
      new Map<T[K], T[]>());
  }
}
export const sum${number} = (...numbers: number[]) => numbers.map((n) => n ** 2).filter(Number.isFinite).reduce((a, b) => a + b, 0);
`;

function typescript() {
  const ts = require('typescript');
  const files = Array.from({ length: 30 }, (_, number) => `module${number}.ts`);
  files.forEach((file, number) => fs.writeFileSync(file, source(number)));
  while (!isOver()) {
    const program = ts.createProgram(files, { target: ts.ScriptTarget.ES2022, strict: true, outDir: 'out', types: [] });
    const errors = [...ts.getPreEmitDiagnostics(program), ...program.emit().diagnostics];
    if (errors.length > 0) throw new Error(ts.formatDiagnostics(errors, ts.createCompilerHost({})));
  }
}

async function webpack() {
  const bundle = require('webpack');
  fs.writeFileSync('entry.js', `
    import { createElement } from 'react'; import { renderToString } from 'react-dom/server'; import { createRoot } from 'react-dom/client';
    console.log(renderToString(createElement('p')), createRoot);`);
  const options = {
    mode: 'production', entry: './entry.js', context: process.cwd(), cache: false,
    resolve: { modules: [packages] }, output: { path: path.resolve('out') },
  };
  while (!isOver()) {
    await new Promise((resolve, reject) => bundle(options, (error, stats) =>
      error || stats.hasErrors() ? reject(error ?? new Error(stats.toString())) : resolve()));
  }
}

// Go's compiler made WebAssembly of it.
async function esbuild() {
  const { transform } = require('esbuild-wasm');
  const text = fs.readFileSync(path.join(packages, 'react-dom/cjs/react-dom-client.development.js'), 'utf8');
  while (!isOver()) await transform(text, { minify: true, target: 'es2017' });
}

// A library with many functions, for programs that work on JavaScript.
const library = () => fs.readFileSync(path.join(packages, 'lodash/lodash.js'), 'utf8');

function babel() {
  const { transformSync } = require('@babel/core');
  const [text, preset] = [library(), require.resolve('@babel/preset-env')];
  const options = { presets: [[preset, { targets: 'ie 11' }]], configFile: false, babelrc: false, compact: false, sourceType: 'script' };
  while (!isOver()) transformSync(text, options);
}

function terser() {
  const { minify_sync: minify } = require('terser');
  const text = library();
  while (!isOver()) minify(text, { compress: true, mangle: true });
}

async function express() {
  const app = require('express')();
  app.use((request, _, next) => { request.started = performance.now(); next(); });
  app.get('/items/:id', (request, response) => response.json({
    id: request.params.id, squares: Array.from({ length: 50 }, (_, n) => n * n), query: request.query,
  }));
  const server = app.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
  const get = (number) => new Promise((resolve, reject) => {
    const url = `http://127.0.0.1:${server.address().port}/items/${number}?page=${number}`;
    http.get(url, { agent }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part) => { text += part; });
      response.on('end', () => resolve(JSON.parse(text)));
    }).on('error', reject);
  });
  const client = async () => { for (let number = 0; !isOver(); number++) await get(number); };
  await Promise.all(Array.from({ length: 8 }, client));
  process.exit(0);
}

// Builds a site with Next.js over and over, in processes of its own, until it is killed.
async function next() {
  fs.mkdirSync('app', { recursive: true });
  fs.symlinkSync(packages, 'node_modules');
  fs.writeFileSync('package.json', '{ "private": true }');
  fs.writeFileSync('app/layout.js', 'export default ({ children }) => <html><body>{children}</body></html>;');
  for (let number = 0; number < 20; number++) {
    fs.mkdirSync(`app/page${number}`);
    fs.writeFileSync(`app/page${number}/page.js`, `
      export default function Page() { return <ul>{Array.from({ length: 500 }, (_, n) => <li key={n}>{n * ${number}}</li>)}</ul>; }`);
  }
  process.env.NEXT_TELEMETRY_DISABLED = '1';
  const { spawnSync } = require('node:child_process');
  const program = path.join(packages, 'next/dist/bin/next');
  while (!isOver()) {
    const { status } = spawnSync(process.execPath, [program, 'build'], { stdio: 'inherit' });
    if (status !== 0) throw new Error(`next build ended with ${status}`);
  }
}

Promise.resolve({ typescript, webpack, esbuild, babel, terser, express, next }[name]()).catch((error) => {
  console.error(error);
  process.exit(1);
});
