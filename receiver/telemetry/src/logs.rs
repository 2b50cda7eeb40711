//! The log: its outputs, its encoding, and the filter of levels and repeated lines.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Mutex;
use std::time::Instant;

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use rustix::fs::OFlags;
use sidewinder_base::lock::lock;
use sidewinder_base::terminal::supports_colour;
use sidewinder_config::{LogEncoding, LogLevel, LogOutput, LogSampling, LogTelemetry};
use sidewinder_text::ExternalText;
use thiserror::Error;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt as _};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

use super::otlp::{self, OtlpError};
use crate::log_fields::EscapedFields;

/// Why the log can't be set up as configured.
#[derive(Debug, Error)]
pub enum LogError {
    #[error("can't open the log {path}")]
    Open { path: String, source: std::io::Error },
    #[error(transparent)]
    Otlp(#[from] OtlpError),
    #[error("there is a log already")]
    Twice,
}

type Layers = Vec<Box<dyn Layer<Registry> + Send + Sync>>;

/// The log of this process, whose configuration can be changed.
pub(super) struct ReloadableLog {
    handle: reload::Handle<Layers, Registry>,
    provider: Option<SdkLoggerProvider>,
}

impl ReloadableLog {
    /// Sets up the log. Must be called in the context of a runtime if log records are sent.
    pub(super) fn start(config: &LogTelemetry, resource: &Resource) -> Result<Self, LogError> {
        let (layers, provider) = layers(config, resource)?;
        let (layer, handle) = reload::Layer::new(layers);
        tracing_subscriber::registry().with(layer).try_init().map_err(|_| LogError::Twice)?;
        Ok(Self { handle, provider })
    }

    /// Applies another configuration. If that fails, the log is unchanged.
    pub(super) fn reconfigure(&mut self, config: &LogTelemetry, resource: &Resource) -> Result<(), LogError> {
        let (layers, provider) = layers(config, resource)?;
        // Fails only if the subscriber is gone, which lives as long as the process.
        let _ = self.handle.reload(layers);
        self.flush_and_stop();
        self.provider = provider;
        Ok(())
    }

    /// Sends the pending log records, and stops sending.
    pub(super) fn flush_and_stop(&mut self) {
        if let Some(provider) = self.provider.take() {
            // If the log can't be sent, this can't be logged either.
            let _ = provider.shutdown();
        }
    }
}

impl fmt::Debug for ReloadableLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("sends", &self.provider.is_some()).finish_non_exhaustive()
    }
}

fn layers(
    config: &LogTelemetry,
    resource: &Resource,
) -> Result<(Layers, Option<SdkLoggerProvider>), LogError> {
    let outputs = config.output_paths.iter().map(writer).collect::<Result<Vec<_>, _>>()?;
    let writer = outputs
        .into_iter()
        .reduce(|first, second| BoxMakeWriter::new(first.and(second)))
        .unwrap_or_else(|| BoxMakeWriter::new(std::io::stderr));
    let lines = tracing_subscriber::fmt::layer().with_target(false).with_writer(writer);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.encoding {
        LogEncoding::Json => Box::new(lines.json()),
        // Colours only if standard error is a terminal.
        LogEncoding::Console => {
            Box::new(lines.fmt_fields(EscapedFields).with_ansi(supports_colour(&std::io::stderr())))
        }
    };
    let filtered = |layer: Box<dyn Layer<Registry> + Send + Sync>| -> Box<dyn Layer<Registry> + Send + Sync> {
        Box::new(layer.with_filter(LogFilter::new(level_targets(config.level), config.sampling.clone())))
    };
    let mut layers = vec![filtered(lines)];
    let mut provider = SdkLoggerProvider::builder().with_resource(resource.clone());
    for processor in &config.processors {
        provider = provider.with_batch_exporter(otlp::log_exporter(processor)?);
    }
    let provider = (!config.processors.is_empty()).then(|| provider.build());
    if let Some(provider) = &provider {
        layers.push(filtered(Box::new(OpenTelemetryTracingBridge::new(provider))));
    }
    Ok((layers, provider))
}

/// The filter for `level`: Sidewinder's own lines at that level, and at most warnings of libraries. Libraries that send log
/// records log nothing: their lines would cause further ones without end.
fn level_targets(level: LogLevel) -> Targets {
    let ours = match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    Targets::new().with_default(ours.min(LevelFilter::WARN)).with_target("sidewinder", ours).with_targets(
        ["h2", "hyper", "hyper_util", "tonic", "tower", "opentelemetry"]
            .map(|target| (target, LevelFilter::OFF)),
    )
}

fn writer(output: &LogOutput) -> Result<BoxMakeWriter, LogError> {
    Ok(match output {
        LogOutput::Stderr => BoxMakeWriter::new(std::io::stderr),
        LogOutput::Stdout => BoxMakeWriter::new(std::io::stdout),
        LogOutput::File(path) => {
            // A named pipe that nobody reads is an error instead of a wait, and loses lines instead of stopping threads.
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let opened = File::options().append(true).create(true).custom_flags(nonblocking).open(path);
            let file = opened
                .map_err(|source| LogError::Open { path: ExternalText::new(path).to_string(), source })?;
            BoxMakeWriter::new(Mutex::new(file))
        }
    })
}

/// Passes lines by level, and samples repeated ones: from each callsite, the first `initial` lines in a tick pass, then one
/// in `thereafter`.
///
/// Both in one filter, which is evaluated for every line: tracing-subscriber 0.3 keeps a filter's result for the thread's
/// next line if another filter around it rejected the last one, or if the filter is not evaluated again.
struct LogFilter {
    targets: Targets,
    sampling: Option<LogSampling>,
    counts_by_callsite: Mutex<HashMap<Identifier, (Instant, u64)>>,
}

impl LogFilter {
    fn new(targets: Targets, sampling: Option<LogSampling>) -> Self {
        Self { targets, sampling, counts_by_callsite: Mutex::default() }
    }

    fn passes(&self, callsite: Identifier, now: Instant) -> bool {
        let Some(sampling) = &self.sampling else { return true };
        let mut counts = lock(&self.counts_by_callsite);
        let (since, count) = counts.entry(callsite).or_insert((now, 0));
        if now.duration_since(*since) >= sampling.tick {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        let beyond = count.saturating_sub(sampling.initial);
        beyond == 0 || (sampling.thereafter > 0 && beyond % sampling.thereafter == 0)
    }
}

impl<S> Filter<S> for LogFilter {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        Filter::enabled(&self.targets, metadata, context)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        let interest = Filter::<S>::callsite_enabled(&self.targets, metadata);
        if interest.is_never() { interest } else { Interest::sometimes() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Filter::<S>::max_level_hint(&self.targets)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.passes(event.metadata().callsite(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing::{debug, info};

    use super::*;

    const TICK: Duration = Duration::from_secs(10);

    #[test]
    fn repeated_lines_are_left_out_until_the_next_tick() {
        let sampling = LogSampling { tick: TICK, initial: 2, thereafter: 3 };
        let filter = LogFilter::new(Targets::new(), Some(sampling));
        let callsite = tracing::callsite!(name: "line", kind: tracing::metadata::Kind::EVENT, fields: );
        let callsite = tracing::Callsite::metadata(callsite).callsite();
        let now = Instant::now();
        let passed: Vec<bool> = (0..8).map(|_| filter.passes(callsite.clone(), now)).collect();
        assert_eq!(passed, [true, true, false, false, true, false, false, true]);
        assert!(filter.passes(callsite, now + TICK));
    }

    #[test]
    fn a_line_passes_whatever_was_left_out_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let config = LogTelemetry {
            sampling: Some(LogSampling { tick: TICK, initial: 2, thereafter: 0 }),
            output_paths: vec![LogOutput::File(path.clone())],
            ..LogTelemetry::default()
        };
        let (layers, _) = layers(&config, &Resource::builder_empty().build()).unwrap();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layers), || {
            for index in 0..5 {
                debug!("not at this level");
                info!("line {index}");
            }
            for _ in 0..5 {
                debug!("not at this level, elsewhere");
            }
            info!("the last");
        });
        let log = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = log.lines().filter_map(|line| line.split("INFO ").nth(1)).collect();
        assert_eq!(lines, ["line 0", "line 1", "the last"]);
    }
}
