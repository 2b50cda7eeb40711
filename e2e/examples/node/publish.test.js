// What is published is the span of the active context, in callbacks of every kind and in their turns: node publish.test.js
'use strict';

const assert = require('node:assert');
const { AsyncResource } = require('node:async_hooks');
const { randomBytes } = require('node:crypto');
const { EventEmitter } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const { setTimeout: pause } = require('node:timers/promises');
const { gzip } = require('node:zlib');
const { context, trace } = require('@opentelemetry/api');
const { BasicTracerProvider } = require('@opentelemetry/sdk-trace-base');
const { publish } = require('./publish.js');

const REQUESTS = 40;
const KINDS = 30;

// In the place of the addon.
let published = '';
const seen = new Map();
publish(
  { publishProcess() {}, set: (traceId, spanId) => (published = spanId), clear: () => (published = '') },
  'test',
  '1.0.0',
);
const tracer = new BasicTracerProvider().getTracer('test');

function look(kind) {
  assert.strictEqual(published, trace.getSpan(context.active())?.spanContext().spanId ?? '', kind);
  seen.set(kind, (seen.get(kind) ?? 0) + 1);
}

const inSpan = (name, work) => tracer.startActiveSpan(name, async (span) => (await work(), span.end()));

async function* numbers() {
  look('generator');
  yield 1;
  await null;
  look('resumed generator');
  yield 2;
}

async function request(url) {
  await inSpan('request', async () => {
    look('span');
    await null;
    look('await');
    setTimeout(() => look('timeout'), 1);
    setImmediate(() => look('immediate'));
    process.nextTick(() => look('tick'));
    queueMicrotask(() => look('microtask'));
    fs.stat('/', () => look('file'));
    await fs.promises.stat('/');
    look('awaited file');
    const resource = new AsyncResource('test');
    setTimeout(() => {
      resource.runInAsyncScope(() => look('resource'));
      look('after a resource');
    }, 2);
    const emitter = new EventEmitter().on('event', () => look('event'));
    emitter.emit('event');
    await pause(1);
    look('awaited timeout');
    randomBytes(8, () => look('random bytes'));
    gzip('text', () => look('compressed'));
    await new Promise((resolve) => {
      http.get(url, (response) => {
        look('response');
        response.on('data', () => look('data'));
        response.on('end', () => resolve(look('end of data')));
      });
    });
    await { then: (resolve) => resolve(look('thenable')) };
    look('after a thenable');
    await inSpan('inner', async () => {
      look('inner span');
      await null;
      look('await in an inner span');
    });
    look('after an inner span');
    for await (const number of numbers()) look(`number ${number}`);
  });
  look('outside');
  await null;
  look('await outside');
}

const server = http.createServer((_, response) => {
  look('server');
  inSpan('answer', async () => {
    look('span of the server');
    await null;
    response.end('text');
  });
});
server.listen(0, '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  await Promise.all(Array.from({ length: REQUESTS }, () => request(url)));
  await pause(50);
  server.close();
  assert.strictEqual(seen.size, KINDS, [...seen.keys()].join(', '));
  for (const [kind, times] of seen) assert.ok(times >= REQUESTS, `${kind}: ${times}`);
});
