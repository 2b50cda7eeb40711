//! `sidewinder view` and `sidewinder diff`: show, convert or compare profiles that were written earlier, or that arrive now.

mod listen;
mod serve;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::terminal::{print_notice, supports_colour};
use sidewinder_debug_files::DebugRoots;
use sidewinder_render::{
    DifferenceBasis, DisplayNames, DocumentBuilder, NameStyle, Profile, ProfileFormat, difference, escaped,
    match_renamed_binaries, merge, write, write_page,
};
use sidewinder_report::{encode, import};
use sidewinder_server::PageResponse;
use sidewinder_server::annotate::Annotator;
use sidewinder_server::live::split_view;
use sidewinder_text::ExternalText;
use tracing::level_filters::LevelFilter;

use self::serve::{POLL_INTERVAL, serve_privately, start_runtime};
use super::tables::print_tables;
use super::{
    CommandResult, code, is_read, log_to_stderr, print_all, stop_flag_in_terminal, terminal_columns,
};
use crate::cli::{DiffArgs, ViewArgs};
use crate::output::{Output, OutputFormat};

pub(crate) fn view(args: &ViewArgs) -> CommandResult {
    log_to_stderr(LevelFilter::WARN);
    let Some(file) = &args.file else { return listen::listen(args.listen.as_ref()) };
    let target = match &args.output {
        Some(path) => Some((OutputFormat::from_path(path, args.format)?, Output::new(path)?)),
        None => None,
    };
    let debug_roots = code::debug_roots(&args.debuginfod)?;
    let format = target.as_ref().map(|(format, _)| *format);
    let annotator = code::annotator(&args.code, format, false, Arc::clone(&debug_roots))?;
    let mut profiles = load_profiles(file, args.sample_type.as_deref(), &debug_roots)?;
    let style = args.names.map(NameStyle::from);
    if let Some((format, output)) = &target {
        let shown = if *format == OutputFormat::Rendered(ProfileFormat::Html) { profiles.len() } else { 1 };
        let (shown, others) = profiles.split_at_mut(shown);
        print_notice(format_args!("{}", code::annotate(&annotator, &args.code, shown)));
        write_file(shown, *format, style, output)?;
        if !others.is_empty() {
            let names: Vec<_> = others.iter().map(|profile| profile.measure.name()).collect();
            let names = escaped(&names.join(", ")).into_owned();
            print_notice(format_args!(
                "the file also holds {names}: --sample-type selects one, .html shows all\n"
            ));
        }
    }
    if args.table {
        print_tables(&mut profiles, &args.table_layout, style.unwrap_or_default())?;
    } else if target.is_none() {
        profiles.iter_mut().for_each(|profile| profile.annotations.are_served = true);
        return serve(profiles, style.unwrap_or_default(), Some(annotator));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn diff(args: &DiffArgs) -> CommandResult {
    log_to_stderr(LevelFilter::WARN);
    let output = args.output.as_deref().map(page_output).transpose()?;
    let debug_roots = Arc::new(DebugRoots::open::<&Path>([]));
    let load = |path| load_profile(path, args.sample_type.as_deref(), &debug_roots);
    let (mut before, mut after) = (load(&args.before)?, load(&args.after)?);
    let renamed = match_renamed_binaries(&mut before, &after);
    let both = merge(&before, &after);
    // Tables are folded, and the page is not.
    before.fold(args.table.inlined());
    after.fold(args.table.inlined());
    let is_terminal = io::stdout().is_terminal();
    let columns = if is_terminal { terminal_columns() } else { usize::MAX };
    let options = args.table.options(columns, supports_colour(&io::stdout()));
    let style = NameStyle::from(args.names);
    let names = DisplayNames::new([&before, &after], style).with_lock_sites([&before, &after]);
    let basis = match args.requests {
        Some(requests) => DifferenceBasis::Requests(requests),
        None if args.per_second => DifferenceBasis::Duration,
        None => DifferenceBasis::Total,
    };
    let table = difference(&before, &after, &renamed, &names, basis, options).map_err(|error| {
        Failure::new(ExitCause::Usage, "can't compare the profiles").with_source(error).with_next_step(
            "compare profiles of the same type: --sample-type selects one; --per-second takes recordings",
        )
    })?;
    print_all(&table)?;
    match output {
        Some(output) => {
            let html = OutputFormat::Rendered(ProfileFormat::Html);
            write_file(slice::from_ref(&both), html, Some(style), &output).map(|()| ExitCode::SUCCESS)
        }
        None if is_terminal => serve(vec![both], style, None),
        // Nobody would read the address of the page, nor end the server.
        None => Ok(ExitCode::SUCCESS),
    }
}

fn page_output(path: &Path) -> Result<Output, Failure> {
    match OutputFormat::from_path(path, None) {
        Ok(OutputFormat::Rendered(ProfileFormat::Html)) => Output::new(path),
        _ => Err(Failure::new(
            ExitCause::Usage,
            format!("can't write a comparison to {}", ExternalText::new(path)),
        )
        .with_next_step("only the page can show a comparison: use a name that ends in .html")),
    }
}

/// Reads the profile of this sample type; by default of CPU time, or of the first type.
pub(super) fn load_profile(
    path: &Path,
    sample_type: Option<&str>,
    debug_roots: &Arc<DebugRoots>,
) -> Result<Profile, Failure> {
    load_profiles(path, sample_type, debug_roots).map(|mut profiles| profiles.swap_remove(0))
}

/// Reads the profiles of a file that have samples, of this sample type or of each, the default one first: there is at least one.
fn load_profiles(
    path: &Path,
    sample_type: Option<&str>,
    debug_roots: &Arc<DebugRoots>,
) -> Result<Vec<Profile>, Failure> {
    let failed = |why: import::ImportError| {
        Failure::new(ExitCause::Usage, format!("can't show {}", ExternalText::new(path))).with_source(why).with_next_step(
            "give a .otlp, .pb.gz or .folded file from `record`, any pprof file, folded stacks, perf.data, or the output of `perf script`",
        )
    };
    let mut profiles = import::read_profiles(path, sample_type, debug_roots).map_err(failed)?;
    profiles.retain(|profile| profile.total_count() > 0);
    if profiles.is_empty() {
        return Err(Failure::new(ExitCause::Usage, format!("{} has no samples", ExternalText::new(path)))
            .with_next_step("record again, for longer, or while the target is busy"));
    }
    Ok(profiles)
}

/// Writes profiles, with the names that their format has by default if `names` is `None`: only a page can hold several.
fn write_file(
    profiles: &[Profile],
    format: OutputFormat,
    names: Option<NameStyle>,
    output: &Output,
) -> Result<(), Failure> {
    // Never set: an interrupt ends the process at once, and leaves an existing file unchanged.
    let never_stop = AtomicBool::new(false);
    match format {
        OutputFormat::Otlp => {
            let Some(profile) = profiles.first() else { return Ok(()) };
            let report = encode::report(profile).map_err(|error| {
                Failure::new(ExitCause::Usage, format!("can't write {}", ExternalText::new(output.path())))
                    .with_source(error)
                    .with_next_step("write another format: .pb.gz, .folded or .html take any number")
            })?;
            output.write(&never_stop, |out| out.write_all(report.as_bytes()))?;
        }
        OutputFormat::Rendered(format) => {
            let names = names.unwrap_or(format.default_names());
            output.write(&never_stop, |out| match (format, profiles) {
                (ProfileFormat::Html, profiles) => Ok(write_page(profiles, names, out)?),
                (format, [first, ..]) => write(first, format, names, out),
                (_, []) => Ok(()),
            })?;
        }
    }
    print_notice(format_args!("wrote {}\n", ExternalText::new(output.path())));
    Ok(())
}

/// Serves the page of profiles until interrupted. `annotator` answers what it asks for of the code of functions.
fn serve(profiles: Vec<Profile>, names: NameStyle, annotator: Option<Arc<Annotator>>) -> CommandResult {
    let stop = stop_flag_in_terminal()?;
    let failed = |error: io::Error| Failure::runtime("can't serve the page", error);
    let mut page = Vec::new();
    write_page(&profiles, names, &mut page)
        .map_err(|error| Failure::runtime("can't make the page", error))?;
    let page = String::from_utf8(page).map_err(|error| Failure::runtime("can't make the page", error))?;
    let runtime = start_runtime()?;
    let documents: Vec<_> = profiles.iter().map(document).collect();
    // The code of functions of the first profile is at `source/FUNCTION`, of the next one at `1/source/FUNCTION`.
    let handler = move |path: &str| match split_view(path.strip_prefix('/')?) {
        (0, "") => Some(PageResponse::with_own_policy(page.clone())),
        (view, code) => {
            let (document, profile) = (documents.get(view)?, profiles.get(view)?);
            let function = |number| Some((document.function(number)?, Cow::Borrowed(profile)));
            annotator.as_ref()?.respond(code, function)
        }
    };
    let (_server, url) = serve_privately(Arc::new(handler), runtime.handle()).map_err(failed)?;
    let printed = writeln!(io::stdout(), "{url}/\nOpen this in a browser; Ctrl-C quits.");
    if !is_read(printed)? {
        // Nobody knows the address.
        return Ok(ExitCode::SUCCESS);
    }
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables of the page of a profile.
fn document(profile: &Profile) -> DocumentBuilder {
    let mut document = DocumentBuilder::default();
    document.update(profile, &profile.samples);
    document
}
