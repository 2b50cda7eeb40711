//! Publishing: the process once, and each thread whenever it enters or leaves a span of `tracing`.

use std::sync::OnceLock;

use libdd_library_config::otel_process_ctx;
use libdd_library_config::tracer_metadata::{ThreadLocalMetadata, TracerMetadata};
use libdd_otel_thread_ctx::linux::OwnedThreadContext;
use opentelemetry::trace::TraceContextExt as _;
use tracing::dispatcher::WeakDispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Subscriber};
use tracing_opentelemetry::get_otel_context;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::resource;

/// The only attribute of records, and its number: the crate has one of its own before those that it is given.
const HTTP_ROUTE: (u8, &str) = (1, "http.route");

/// Makes the process known to readers outside of it.
pub fn process_context() -> std::io::Result<()> {
    let metadata = TracerMetadata {
        service_name: Some(resource::NAME.to_owned()),
        service_version: Some(resource::VERSION.to_owned()),
        runtime_id: Some(resource::INSTANCE.to_owned()),
        tracer_language: "rust".to_owned(),
        threadlocal_metadata: Some(ThreadLocalMetadata {
            attribute_keys: vec![HTTP_ROUTE.1.to_owned()],
            ..ThreadLocalMetadata::default()
        }),
        ..TracerMetadata::default()
    };
    otel_process_ctx::publish(&metadata.to_otel_process_ctx())
}

/// What a thread says of the span that it is in.
#[derive(Clone)]
pub struct Current {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub flags: u8,
    /// Empty: of none.
    pub route: Box<str>,
}

impl Current {
    /// As OpenTelemetry has the span, which is begun there if it was not yet.
    fn of(span: &Id, route: HttpRoute, dispatch: &Dispatch) -> Option<Self> {
        let context = get_otel_context(span, dispatch)?;
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid().then(|| Self {
            trace_id: ids.trace_id().to_bytes(),
            span_id: ids.span_id().to_bytes(),
            flags: ids.trace_flags().to_u8(),
            route: route.0,
        })
    }

    /// Until this thread publishes another one, or takes it back.
    pub fn publish(&self) {
        let Self { trace_id, span_id, flags, route } = self;
        let attributes = [(HTTP_ROUTE.0, &**route)];
        let attributes = if route.is_empty() { &[][..] } else { &attributes };
        OwnedThreadContext::update(*trace_id, *span_id, *flags, *span_id, attributes);
    }
}

/// Says that this thread is in no span.
pub fn take_back() {
    drop(OwnedThreadContext::detach());
}

/// Has each thread publish the innermost span that it is in. Comes below the layer of `tracing_opentelemetry`, so that a span is
/// taken back before it ends there.
#[derive(Default)]
pub struct ThreadContexts(OnceLock<WeakDispatch>);

/// The field `http.route` of a span.
#[derive(Clone, Default)]
struct HttpRoute(Box<str>);

impl Visit for HttpRoute {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == HTTP_ROUTE.1 {
            self.0 = value.into();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for ThreadContexts {
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        // A subscriber is registered once.
        let _ = self.0.set(dispatch.downgrade());
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut route = HttpRoute::default();
        attributes.record(&mut route);
        span.extensions_mut().insert(route);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let known = span.extensions().get::<Current>().cloned();
        let entered = known.or_else(|| {
            let route = span.extensions_mut().remove::<HttpRoute>()?;
            let begun = Current::of(id, route, &self.0.get()?.upgrade()?)?;
            span.extensions_mut().insert(begun.clone());
            Some(begun)
        });
        if let Some(entered) = entered {
            entered.publish();
        }
    }

    fn on_exit(&self, _: &Id, context: Context<'_, S>) {
        let outer = context.lookup_current();
        let outer = outer.and_then(|span| span.extensions().get::<Current>().cloned());
        match outer {
            Some(outer) => outer.publish(),
            None => take_back(),
        }
    }
}
