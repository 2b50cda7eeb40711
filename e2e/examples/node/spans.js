// A service whose thread says which span it is in: node spans.js ADDON [SECONDS]. publish.js is what there is to copy. It prints
// each span that it has begun. All of its requests, and a report, take turns on one thread.
'use strict';

const { writeSync } = require('node:fs');
const { setImmediate: turn, setTimeout: pause } = require('node:timers/promises');
const { resolve } = require('node:path');
const { BasicTracerProvider } = require('@opentelemetry/sdk-trace-base');
const { publish } = require('./publish.js');

let sink = 0;

function compute(value) {
  for (let i = 0; i < 1_000_000; i++) value = Math.imul(value ^ i, 1664525) + 1013904223;
  sink ^= value;
}

function cart() {
  compute(3);
}

function query() {
  compute(5);
}

function report() {
  compute(7);
}

function outside() {
  compute(9);
}

function inSpan(tracer, route, work) {
  return tracer.startActiveSpan(route, { attributes: { 'http.route': route } }, async (span) => {
    const { traceId, spanId } = span.spanContext();
    writeSync(1, `${traceId} ${spanId} ${route}\n`);
    try {
      return await work();
    } finally {
      span.end();
    }
  });
}

async function serve(tracer, end) {
  while (Date.now() < end) {
    await inSpan(tracer, '/cart', async () => {
      cart();
      await pause(1);
      await inSpan(tracer, '/query', async () => {
        await turn();
        query();
      });
      cart();
    });
    outside();
    await turn();
  }
}

async function main(addon, seconds) {
  publish(require(resolve(addon)), 'spans-in-node', '1.0.0');
  // As it is set up anywhere else, with an exporter.
  const tracer = new BasicTracerProvider().getTracer('spans-in-node');
  const end = Date.now() + seconds * 1000;
  const reported = inSpan(tracer, '/report', async () => {
    while (Date.now() < end) {
      report();
      await turn();
    }
  });
  await Promise.all([reported, serve(tracer, end), serve(tracer, end), serve(tracer, end)]);
}

main(process.argv[2], Number(process.argv[3] ?? 10));
