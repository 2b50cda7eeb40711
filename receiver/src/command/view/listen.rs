//! `sidewinder view --listen`: a receiver of OTLP, and the live page of what arrives.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::lock::lock;
use sidewinder_base::terminal::print_notice;
use sidewinder_config::{ListenAddress, Ui};
use sidewinder_otlp::receive::{ProfilesService, Taken};
use sidewinder_report::collect::WindowLimits;
use sidewinder_report::import;
use sidewinder_server::OtlpServer;
use sidewinder_server::live::LiveView;
use sidewinder_text::ExternalText;
use tracing::warn;

use super::serve::{POLL_INTERVAL, serve_privately, start_runtime};
use crate::command::{CommandResult, is_read, stop_flag_in_terminal};

/// The port of OTLP over gRPC.
const OTLP_PORT: u16 = 4317;
/// The memory that the profiles of one message may take, before they are cut to what the page holds.
const MESSAGE_MEMORY_BYTES: usize = 256 << 20;
/// How many invalid messages are logged; all of them are counted.
const LOGGED_MAX: u64 = 5;

pub(super) fn listen(address: Option<&ListenAddress>) -> CommandResult {
    let local = ListenAddress { host: "127.0.0.1".to_owned(), port: OTLP_PORT };
    let address = address.unwrap_or(&local);
    let stop = stop_flag_in_terminal()?;
    let runtime = start_runtime()?;
    let live = Arc::new(LiveView::new(Some(WindowLimits::from_config(&Ui::default()))));
    let failed = |error: io::Error| Failure::runtime("can't serve the page", error);
    let pages = live.handler(Arc::new(|_, _| Vec::new()));
    let (_pages, url) = serve_privately(pages, runtime.handle()).map_err(failed)?;
    let received = Arc::new(Mutex::new(Received {
        live,
        title: format!("OTLP at {address}"),
        url: url.clone(),
        counts: ReceivedCounts::default(),
    }));
    let service = {
        let received = Arc::clone(&received);
        // One message at a time: decoding takes many times its memory.
        ProfilesService::new(Arc::new(move |message| lock(&received).take(message)))
    };
    let (_otlp, bound) = OtlpServer::start(address, service, runtime.handle()).map_err(|error| {
        Failure::new(ExitCause::Runtime, format!("can't listen at {address}"))
            .with_source(error)
            .with_next_step(
                "choose another port, for example --listen=127.0.0.1:4327, and name it in the exporter",
            )
    })?;
    if !bound.ip().is_loopback() {
        warn!(address = %bound, "anyone who can connect to this address can add profiles: there is no authentication");
    }
    let printed = writeln!(
        io::stdout(),
        "{url}/\nOpen this in a browser; Ctrl-C quits.\nReceiving profiles by OTLP at {bound}, over gRPC and HTTP."
    );
    if !is_read(printed)? {
        // Nobody knows the address.
        return Ok(ExitCode::SUCCESS);
    }
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
    let counts = lock(&received).counts;
    print_notice(format_args!("{counts}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Takes messages, one at a time.
struct Received {
    live: Arc<LiveView>,
    title: String,
    /// The page, without a slash at its end.
    url: String,
    counts: ReceivedCounts,
}

/// What was received.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct ReceivedCounts {
    messages: u64,
    invalid: u64,
    profiles: u64,
    rejected_profiles: u64,
}

impl Received {
    fn take(&mut self, message: &[u8]) -> Result<Taken, String> {
        self.counts.messages += 1;
        let profiles = import::from_message(&self.title, message, MESSAGE_MEMORY_BYTES).map_err(|error| {
            self.counts.invalid += 1;
            if self.counts.invalid <= LOGGED_MAX {
                warn!(error = &error as &dyn std::error::Error, "a message is invalid");
            }
            error.to_string()
        })?;
        let mut taken = Taken::default();
        for (profile, count) in &profiles {
            match self.live.add_profile(&self.title, profile) {
                Some((number, is_new)) => {
                    self.counts.profiles += *count as u64;
                    if is_new && number > 0 {
                        let measure = ExternalText::new(sidewinder_kind::display_of(profile.measure.name()));
                        print_notice(format_args!("{}/{number}/ shows {measure}\n", self.url));
                    }
                }
                None => {
                    taken.rejected_profiles += *count as u64;
                    taken.reason = format!("no page is left for {}", profile.measure.name());
                }
            }
        }
        self.counts.rejected_profiles += taken.rejected_profiles;
        Ok(taken)
    }
}

impl std::fmt::Display for ReceivedCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { messages, invalid, profiles, rejected_profiles } = self;
        write!(f, "received {messages} messages with {profiles} profiles")?;
        if *invalid > 0 {
            write!(f, "; {invalid} messages were invalid")?;
        }
        if *rejected_profiles > 0 {
            write!(f, "; {rejected_profiles} profiles of too many types were rejected")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn received() -> Received {
        let limits = WindowLimits { max_age: Duration::from_secs(60), max_bytes: 1 << 20 };
        let live = Arc::new(LiveView::new(Some(limits)));
        Received { live, title: "OTLP".to_owned(), url: String::new(), counts: ReceivedCounts::default() }
    }

    #[test]
    fn an_invalid_message_is_refused_and_counted_and_an_empty_one_is_none() {
        let mut received = received();
        assert!(received.take(b"not protobuf").unwrap_err().starts_with("not a ProfilesData message"));
        assert_eq!(received.take(b""), Ok(Taken::default()));
        assert_eq!(received.counts, ReceivedCounts { messages: 2, invalid: 1, ..ReceivedCounts::default() });
        assert_eq!(
            received.counts.to_string(),
            "received 2 messages with 0 profiles; 1 messages were invalid"
        );
    }
}
