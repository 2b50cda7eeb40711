// Which span the thread is in, for readers outside of the process (OTEP 4947, "Thread Context"). To copy, with thread_context.c.
'use strict';

const { createHook } = require('node:async_hooks');
const { isMainThread } = require('node:worker_threads');
const { context, isSpanContextValid, ROOT_CONTEXT, trace } = require('@opentelemetry/api');
const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks');

// The variable belongs to the thread, which runs one callback after the other: what is published has to change with them.
class PublishingContextManager extends AsyncLocalStorageContextManager {
  constructor(native) {
    super();
    this.native = native;
    this.published = ROOT_CONTEXT;
    // Of callbacks that others interrupt, as events of emitters do, what was published before each.
    this.outer = [];
    this.hook = createHook({
      before: () => {
        this.outer.push(this.published);
        this.publish(this.active());
      },
      after: () => this.publish(this.outer.pop() ?? ROOT_CONTEXT),
    });
  }

  enable() {
    this.hook.enable();
    return super.enable();
  }

  disable() {
    this.hook.disable();
    this.outer = [];
    this.publish(ROOT_CONTEXT);
    return super.disable();
  }

  with(active, work, thisArg, ...values) {
    const outer = this.active();
    return super.with(active, () => {
      this.publish(active);
      try {
        return work.apply(thisArg, values);
      } finally {
        this.publish(outer);
      }
    });
  }

  publish(active) {
    if (active === this.published) return;
    this.published = active;
    const span = trace.getSpan(active);
    const ids = span?.spanContext();
    if (ids && isSpanContextValid(ids)) {
      this.native.set(ids.traceId, ids.spanId, ids.traceFlags, String(span.attributes?.['http.route'] ?? ''));
    } else {
      this.native.clear();
    }
  }
}

// Publishes from now on. Takes the place of the SDK's context manager, and `native` is the built addon. Each worker calls it too.
function publish(native, service, version) {
  if (isMainThread) native.publishProcess(service, version);
  context.setGlobalContextManager(new PublishingContextManager(native).enable());
}

module.exports = { publish };
