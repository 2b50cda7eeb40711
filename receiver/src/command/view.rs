//! `sidewinder view` and `sidewinder diff`: show, convert or compare profiles that were written earlier, or that arrive now.

mod listen;

use std::borrow::Cow;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidewinder_render::{
    DifferenceBasis, DisplayNames, DocumentBuilder, NameStyle, Profile, ProfileFormat, TableOptions,
    difference, merge, write,
};
use tokio::runtime::{Handle, Runtime};

use super::{CommandResult, code, log_to_stderr, print_all, stop_flag_in_terminal, terminal_columns};
use crate::annotate::Annotator;
use crate::cli::{DiffArgs, ViewArgs};
use crate::exit::{ExitCause, Failure};
use crate::output::{Output, OutputFormat};
use crate::sampling::debug_files::DebugRoots;
use crate::server::{Handler, PageResponse, Server};
use crate::terminal::{print_notice, supports_colour};
use crate::{encode, import};

/// How often the stop flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn view(args: &ViewArgs) -> CommandResult {
    log_to_stderr("warn");
    let Some(file) = &args.file else { return listen::listen(args.listen.as_ref()) };
    let target = match &args.output {
        Some(path) => Some((OutputFormat::from_path(path, args.format)?, Output::new(path)?)),
        None => None,
    };
    let debug_roots = code::debug_roots(&args.debuginfod)?;
    let format = target.as_ref().map(|(format, _)| *format);
    let annotator = code::annotator(&args.code, format, false, Arc::clone(&debug_roots))?;
    let mut profile = load_profile(file, args.sample_type.as_deref(), &debug_roots)?;
    match target {
        Some((format, output)) => {
            print_notice(format_args!(
                "{}",
                code::annotate(&annotator, &args.code, slice::from_mut(&mut profile))
            ));
            write_file(&profile, format, args.names.map(NameStyle::from), &output)
        }
        None => {
            profile.annotations.are_served = true;
            serve(profile, args.names.map(NameStyle::from).unwrap_or_default(), Some(annotator))
        }
    }
}

pub(crate) fn diff(args: &DiffArgs) -> CommandResult {
    log_to_stderr("warn");
    let output = args.output.as_deref().map(page_output).transpose()?;
    let debug_roots = Arc::new(DebugRoots::open::<&Path>([]));
    let load = |path| load_profile(path, args.sample_type.as_deref(), &debug_roots);
    let (before, after) = (load(&args.before)?, load(&args.after)?);
    let options = TableOptions {
        rows: args.rows,
        columns: terminal_columns(),
        is_coloured: supports_colour(&std::io::stdout()),
    };
    let style = NameStyle::from(args.names);
    let names = DisplayNames::new([&before, &after], style);
    let basis = match args.requests {
        Some(requests) => DifferenceBasis::Requests(requests),
        None if args.per_second => DifferenceBasis::Duration,
        None => DifferenceBasis::Total,
    };
    let table = difference(&before, &after, &names, basis, options).map_err(|error| {
        Failure::new(ExitCause::Usage, "can't compare the profiles").with_source(error).with_next_step(
            "compare profiles of the same type: --sample-type selects one; --per-second takes recordings",
        )
    })?;
    print_all(&table)?;
    let both = merge(&before, &after);
    match output {
        Some(output) => write_file(&both, OutputFormat::Rendered(ProfileFormat::Html), Some(style), &output),
        None => serve(both, style, None),
    }
}

fn page_output(path: &Path) -> Result<Output, Failure> {
    match OutputFormat::from_path(path, None) {
        Ok(OutputFormat::Rendered(ProfileFormat::Html)) => Output::new(path),
        _ => Err(Failure::new(ExitCause::Usage, format!("can't write a comparison to {}", path.display()))
            .with_next_step("only a page compares: give it a name that ends in .html")),
    }
}

pub(super) fn load_profile(
    path: &Path,
    sample_type: Option<&str>,
    debug_roots: &Arc<DebugRoots>,
) -> Result<Profile, Failure> {
    let failed = |why: import::ImportError| {
        Failure::new(ExitCause::Usage, format!("can't show {}", path.display())).with_source(why).with_next_step(
            "give a file that `record` wrote as .otlp, .pb.gz or .folded, or any pprof file, folded stacks, perf.data, or what `perf script` printed",
        )
    };
    let profile = import::read_profile(path, sample_type, debug_roots).map_err(failed)?;
    if profile.total_count() == 0 {
        return Err(Failure::new(ExitCause::Usage, format!("{} has no samples", path.display()))
            .with_next_step("record again, for longer, or while the target is busy"));
    }
    Ok(profile)
}

/// Writes a profile, with the names that its format has by default if `names` is `None`.
fn write_file(
    profile: &Profile,
    format: OutputFormat,
    names: Option<NameStyle>,
    output: &Output,
) -> CommandResult {
    // Never set: an interrupt ends the process at once, and leaves an existing file unchanged.
    let never_stop = AtomicBool::new(false);
    match format {
        OutputFormat::Otlp => {
            let report = encode::report(profile).map_err(|error| {
                Failure::new(ExitCause::Usage, format!("can't write {}", output.path().display()))
                    .with_source(error)
                    .with_next_step("write another format: .pb.gz, .folded or .html take any number")
            })?;
            output.write(&never_stop, |out| out.write_all(report.as_bytes()))?;
        }
        OutputFormat::Rendered(format) => {
            let names = names.unwrap_or(format.default_names());
            output.write(&never_stop, |out| write(profile, format, names, out))?;
        }
    }
    print_notice(format_args!("wrote {}\n", output.path().display()));
    Ok(ExitCode::SUCCESS)
}

/// Serves the page of a profile until interrupted. `annotator` answers what it asks for of the code of functions.
fn serve(profile: Profile, names: NameStyle, annotator: Option<Arc<Annotator>>) -> CommandResult {
    let stop = stop_flag_in_terminal()?;
    let failed = |error: std::io::Error| Failure::runtime("can't serve the page", error);
    let mut page = Vec::new();
    write(&profile, ProfileFormat::Html, names, &mut page)
        .map_err(|error| Failure::runtime("can't make the page", error))?;
    let page = String::from_utf8(page).map_err(|error| Failure::runtime("can't make the page", error))?;
    let runtime = start_runtime()?;
    let mut document = DocumentBuilder::default();
    document.update(&profile);
    let handler = move |path: &str| match path.strip_prefix('/')? {
        "" => Some(PageResponse::with_own_policy(page.clone())),
        code => annotator
            .as_ref()?
            .respond(code, |number| Some((document.function(number)?, Cow::Borrowed(&profile)))),
    };
    let (_server, url) = serve_privately(Arc::new(handler), runtime.handle()).map_err(failed)?;
    writeln!(std::io::stdout(), "{url}/\nOpen this in a browser; Ctrl-C ends.").map_err(failed)?;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(ExitCode::SUCCESS)
}

fn start_runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| Failure::runtime("can't start threads", error))
}

/// Serves pages on the loopback interface, below a random path, which keeps them from other users of the machine. Returns the URL,
/// without a slash at its end.
fn serve_privately(pages: Arc<Handler>, runtime: &Handle) -> std::io::Result<(Server, String)> {
    let root = format!("/{:016x}{:016x}", rand::random::<u64>(), rand::random::<u64>());
    let handler: Arc<Handler> = {
        let root = root.clone();
        Arc::new(move |path| pages(path.strip_prefix(&root)?))
    };
    let (server, address) = Server::start_on_free_port(handler, runtime)?;
    Ok((server, format!("http://{address}{root}")))
}
