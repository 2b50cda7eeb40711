//! Parca and Pyroscope answer with what was sent to them, directly and through Collectors: each kind of profile under the name that
//! `docs/backends.md` has, its stacks' leaves with their values, the service, and the samples of a span.
//!
//! Neither can be built from a module proxy. Whoever has their programs names them: `make backends-test`.

mod parca;
mod pyroscope;
mod server;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sidewinder_e2e_instrumented::service::Service;
use sidewinder_e2e_support::collector::{Collector, Setup, Version};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::received::Received;
use sidewinder_e2e_support::session::Daemon;
use sidewinder_e2e_support::workload::{CONVOYS, FAULTS};
use sidewinder_e2e_support::{command, paths, requirement};
use sidewinder_otlp::decode::{AttributeValue, DecodedEvent, DecodedFrame};

use self::parca::Parca;
use self::pyroscope::Pyroscope;

const DOCUMENT: &str = "docs/backends.md";
/// As the example service publishes it.
const SERVICE: &str = "example";
/// How long a span of that lasts.
const SPAN_SECONDS: u64 = 3;
/// How long a backend may take until it answers with what it has received.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The sum of the values of each leaf's samples, by [`Backend::leaf`].
type SumsByLeaf = BTreeMap<String, i64>;

/// Which samples of a kind of profile are asked for.
#[derive(Clone, Copy, Debug)]
enum Selection<'a> {
    All,
    /// Those of a service.
    Service(&'a str),
    /// Those of a span, by its ID in hexadecimal digits.
    Span(&'a str),
}

/// A server that takes OTLP profiles and is asked for them.
trait Backend: Sized {
    /// The variable of the environment that names its program.
    const PROGRAM: &'static str;
    /// The column of its names in the table of the documentation.
    const COLUMN: &'static str;
    /// Whether it keeps which span a sample is of.
    const KEEPS_SPANS: bool;

    fn start(program: PathBuf) -> Result<Self>;

    /// Where it receives OTLP by gRPC.
    fn endpoint(&self) -> String;

    /// How it identifies a leaf, if it does.
    fn leaf(frame: &DecodedFrame) -> Option<String>;

    /// The profiles that it has of a kind, merged.
    fn merged(&self, kind: &str, selection: Selection<'_>) -> Result<SumsByLeaf>;

    /// The unit of its values of a kind of profile.
    fn unit(kind: &str) -> Option<&str>;
}

/// On which way profiles get to a backend.
#[derive(Clone, Copy, Debug)]
enum Route {
    Direct,
    Through(Version),
}

impl Route {
    /// Whether profiles arrive, as the documentation says.
    const fn is_open(self) -> bool {
        !matches!(self, Self::Through(Version::Newest))
    }
}

/// The names of the kinds of profile: sample types, each with its name in a backend.
fn kinds<B: Backend>() -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(paths::repository().join(DOCUMENT))?;
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        (cells.len() > 5).then_some(cells)
    });
    let rows: Vec<_> = rows.skip_while(|cells| cells.get(1) != Some(&"Sample type")).collect();
    let column = rows.first().and_then(|head| head.iter().position(|cell| *cell == B::COLUMN));
    let column = column.with_context(|| format!("no column {} in {DOCUMENT}", B::COLUMN))?;
    let code = |cell: &str| Some(cell.strip_prefix('`')?.split_once('`')?.0.to_owned());
    Ok(rows.iter().filter_map(|cells| Some((code(cells.get(1)?)?, code(cells.get(column)?)?))).collect())
}

/// Profiles a service and programs with waits and page faults, and sends that to a backend. Returns what was sent, and the ID of a span.
fn send(backend: &impl Backend, route: Route) -> Result<(Received, String)> {
    let (version, next) = match route {
        Route::Direct => (Version::of_run(), None),
        Route::Through(version) => (version, Some(backend.endpoint())),
    };
    let collector = Collector::set_up(Setup { version, next, ..Setup::default() })?;
    let service = Service::start(4, 2_000)?;
    let destinations = match route {
        Route::Direct => vec![backend.endpoint(), collector.grpc_endpoint()],
        Route::Through(_) => vec![collector.grpc_endpoint()],
    };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sidewinder.yaml");
    fs::write(&path, configuration(service.pid(), &destinations))?;
    let daemon = Daemon::start_from(&path)?;
    // Begins once the service is known by its name.
    thread::sleep(Duration::from_secs(2));
    let [_, span] = service.begin_report(SPAN_SECONDS.try_into()?)?;
    service.ask(2, Duration::from_secs(SPAN_SECONDS))?;
    command::run(&mut CONVOYS.command(&["mutex", "2"])?)?;
    command::run(&mut FAULTS.command(&["4", "2000", "2000"])?)?;
    thread::sleep(Duration::from_secs(1));
    daemon.stop()?;
    service.finish()?;
    Ok((collector.stop()?, span))
}

/// All kinds of profile, to each of the destinations.
fn configuration(pid: u32, destinations: &[String]) -> String {
    let exporters: String = destinations
        .iter()
        .enumerate()
        .map(|(at, endpoint)| {
            format!("  otlp_grpc/{at}: {{ endpoint: '{endpoint}', tls: {{ insecure: true }} }}\n")
        })
        .collect();
    let ids: Vec<String> = (0..destinations.len()).map(|at| format!("otlp_grpc/{at}")).collect();
    format!(
        "receivers:
  profiling:
    samples_per_second: 199
    reporter_interval: 1s
    scope: {{ mode: processes, include: {{ pids: [{pid}], names: [convoys, faults] }} }}
    off_cpu_threshold: 1
    lock_threshold: 1
    lock_wakers: true
    events: [{{ name: page-faults, period: 1 }}]
exporters:
{exporters}service:
  pipelines:
    profiles: {{ receivers: [profiling], exporters: [{}] }}
",
        ids.join(", ")
    )
}

/// The sums of what was sent. `unit`: what the backend counts in.
fn sent<'a, B: Backend>(events: impl Iterator<Item = DecodedEvent<'a>>, unit: Option<&str>) -> SumsByLeaf {
    let mut sums = SumsByLeaf::new();
    for event in events {
        let profile = event.profile;
        let is_in_periods = unit == Some(&*profile.period_unit) && unit != Some(&*profile.sample_unit);
        let value = if is_in_periods { event.value * profile.period } else { event.value };
        if let Some(leaf) = event.sample.stack.first().and_then(|frame| B::leaf(frame)) {
            *sums.entry(leaf).or_default() += value;
        }
    }
    sums
}

/// Whether an event is among those that are asked for.
fn is_selected(event: &DecodedEvent<'_>, selection: Selection<'_>) -> bool {
    match selection {
        Selection::All => true,
        Selection::Service(name) => {
            event.profile.resource.get("service.name").and_then(AttributeValue::as_str) == Some(name)
        }
        Selection::Span(id) => event.sample.link.is_some_and(|link| hex::encode(link.span_id) == id),
    }
}

/// Waits until a backend answers with just these sums; leaves that are not identified are not compared.
fn await_same<B: Backend>(
    backend: &B,
    kind: &str,
    selection: Selection<'_>,
    expected: &SumsByLeaf,
) -> Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let mut has = backend.merged(kind, selection)?;
        has.retain(|leaf, sum| *sum != 0 && expected.contains_key(leaf));
        if has == *expected {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{kind}, {selection:?}: {has:#?}\ninstead of {expected:#?}");
        thread::sleep(Duration::from_secs(1));
    }
}

fn judge<B: Backend>(backend: &B, route: Route) -> Result<()> {
    let (received, span) = send(backend, route)?;
    for (sample_type, kind) in kinds::<B>()? {
        let of = |selection| {
            let events = received.events().filter(|event| *event.profile.sample_type == sample_type);
            sent::<B>(events.filter(|event| is_selected(event, selection)), B::unit(&kind))
        };
        let all = of(Selection::All);
        ensure!(!all.is_empty(), "no {sample_type} was sent");
        if !route.is_open() {
            let has = backend.merged(&kind, Selection::All)?;
            let is_empty = has.values().all(|sum| *sum == 0);
            ensure!(is_empty, "{kind}: {DOCUMENT} says that it is refused, but it is here: {has:?}");
            continue;
        }
        let (of_service, of_span) = (of(Selection::Service(SERVICE)), of(Selection::Span(&span)));
        await_same(backend, &kind, Selection::All, &all)?;
        await_same(backend, &kind, Selection::Service(SERVICE), &of_service)?;
        if B::KEEPS_SPANS {
            await_same(backend, &kind, Selection::Span(&span), &of_span)?;
        }
        let leaves = [&all, &of_service, &of_span].map(SumsByLeaf::len);
        eprintln!("{route:?}: {kind}: leaves in all, of the service, and of a span: {leaves:?}");
        let is_missing = sample_type == "samples" && leaves.contains(&0);
        ensure!(!is_missing, "nothing of {SERVICE} or of {span} was sent");
    }
    Ok(())
}

/// The whole of `test` on one backend.
fn judge_routes<B: Backend>(test: &str) -> Result<()> {
    let Some(program) = env::var_os(B::PROGRAM) else {
        return requirement::absent(
            test,
            &format!("{} names no program: see make backends-test", B::PROGRAM),
        );
    };
    if !requirement::ebpf(test)? {
        return Ok(());
    }
    for route in [Route::Direct].into_iter().chain(Version::ALL.map(Route::Through)) {
        judge(&B::start(PathBuf::from(&program))?, route).with_context(|| format!("{route:?}"))?;
    }
    Ok(())
}

#[promise(Backends, test_all)]
fn pyroscope_answers_with_what_was_sent() -> Result<()> {
    judge_routes::<Pyroscope>("profiles queried from Pyroscope")
}

#[promise(Backends, test_all)]
fn parca_answers_with_what_was_sent() -> Result<()> {
    judge_routes::<Parca>("profiles queried from Parca")
}
