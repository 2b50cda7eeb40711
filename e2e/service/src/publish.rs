//! Publishing: the process once, and each thread whenever it enters or leaves a span of `tracing`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use libdd_library_config::otel_process_ctx;
use libdd_library_config::tracer_metadata::{ThreadLocalMetadata, TracerMetadata};
use libdd_otel_thread_ctx::linux::OwnedThreadContext;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::log;

/// Makes the process known to readers outside of it.
pub fn process_context() -> std::io::Result<()> {
    let metadata = TracerMetadata {
        service_name: Some("example".to_owned()),
        service_version: Some("1.2.3".to_owned()),
        runtime_id: Some("one".to_owned()),
        tracer_language: "rust".to_owned(),
        threadlocal_metadata: Some(ThreadLocalMetadata {
            attribute_keys: vec!["http.route".to_owned()],
            ..ThreadLocalMetadata::default()
        }),
        ..TracerMetadata::default()
    };
    otel_process_ctx::publish(&metadata.to_otel_process_ctx())
}

/// What a span is called outside of the process.
#[derive(Clone, Copy)]
pub struct Ids {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    route: u8,
}

static LAST: AtomicU64 = AtomicU64::new(0);

impl Ids {
    /// Of a new span, whose last byte tells the route.
    fn new(parent: Option<Self>, route: u8) -> Self {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let span_id = (number << 8 | u64::from(route)).to_be_bytes();
        let mut trace_id = [0xee; 16];
        trace_id[8..].copy_from_slice(&span_id);
        Self { trace_id: parent.map_or(trace_id, |parent| parent.trace_id), span_id, route }
    }

    fn publish(self) {
        let route = format!("/{}", self.route);
        OwnedThreadContext::update(self.trace_id, self.span_id, 1, self.span_id, &[(1, &route)]);
    }
}

thread_local! {
    /// The spans that this thread is in, the innermost last, and the log's entries of them.
    static ENTERED: RefCell<Vec<(Ids, log::Open)>> = const { RefCell::new(Vec::new()) };
}

/// Has each thread publish the innermost span that it is in.
pub struct ThreadContexts;

#[derive(Default)]
struct RouteField(u8);

impl Visit for RouteField {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "route" {
            self.0 = value as u8;
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for ThreadContexts {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|parent| parent.extensions().get::<Ids>().copied());
        let mut route = RouteField::default();
        attributes.record(&mut route);
        span.extensions_mut().insert(Ids::new(parent, route.0));
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let ids = context.span(id).and_then(|span| span.extensions().get::<Ids>().copied());
        let Some(ids) = ids else { return };
        let before = log::Open::begin(u64::from_be_bytes(ids.span_id));
        ids.publish();
        ENTERED.with_borrow_mut(|entered| entered.push((ids, before.entered())));
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        ENTERED.with_borrow_mut(|entered| {
            let Some((_, open)) = entered.pop() else { return };
            let open = open.leaving();
            match entered.last() {
                Some((outer, _)) => outer.publish(),
                None => drop(OwnedThreadContext::detach()),
            }
            open.end();
        });
    }
}

/// As a span, without what tracing and the log cost.
pub fn in_bare_span(route: u8, run: impl FnOnce()) {
    Ids::new(None, route).publish();
    run();
    drop(OwnedThreadContext::detach());
}
