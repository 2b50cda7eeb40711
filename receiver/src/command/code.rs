//! The code of profiled functions in the pages of `record` and `view`.

use std::path::Path;
use std::sync::Arc;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_debug_files::DebugRoots;
use sidewinder_render::{Profile, ProfileFormat};
use sidewinder_server::annotate::{AnnotationTally, Annotator, SourceDirectories, SourcePath};

use crate::cli::{CodeArgs, DebuginfodArgs};
use crate::output::OutputFormat;

/// What reads the code that the page is to show. `format` is that of the file; pages that are served have none.
///
/// # Errors
/// If a directory of sources can't be read, or only the file could show code, and it is no page.
pub(super) fn annotator(
    args: &CodeArgs,
    format: Option<OutputFormat>,
    is_served: bool,
    debug_roots: Arc<DebugRoots>,
) -> Result<Arc<Annotator>, Failure> {
    let is_page = matches!(format, None | Some(OutputFormat::Rendered(ProfileFormat::Html)));
    let is_asked = args.assembly.is_some() || !args.source_path.is_empty() && !is_served;
    if is_asked && !is_page {
        return Err(Failure::new(ExitCause::Usage, "only pages show code").with_next_step(
            "write a file whose name ends in .html, or leave --source-path and --assembly out",
        ));
    }
    open(&args.source_path, debug_roots)
}

/// Where debug files may be: here, and on the servers that the command line names.
///
/// # Errors
/// If these can't be asked.
pub(super) fn debug_roots(args: &DebuginfodArgs) -> Result<Arc<DebugRoots>, Failure> {
    let servers = args.start().map_err(|error| {
        Failure::new(ExitCause::Usage, "can't download debug information").with_source(error).with_next_step(
            "set DEBUGINFOD_URLS, for example to https://debuginfod.debian.net, or give the URLs with --debuginfod=URLS",
        )
    })?;
    Ok(Arc::new(DebugRoots::open::<&Path>([]).with_servers(servers)))
}

/// What reads the code of functions, with sources below these directories.
///
/// # Errors
/// If one of them can't be read.
pub(super) fn open(
    source_paths: &[SourcePath],
    debug_roots: Arc<DebugRoots>,
) -> Result<Arc<Annotator>, Failure> {
    let sources = SourceDirectories::open(source_paths).map_err(|error| {
        Failure::new(ExitCause::Usage, "can't show sources")
            .with_source(error)
            .with_next_step("give directories that you may read with --source-path")
    })?;
    Ok(Arc::new(Annotator::new(sources, debug_roots)))
}

/// Adds the code that was asked for to profiles. Returns a line that says how much of it was found; empty if nothing was
/// asked for.
pub(super) fn annotate(annotator: &Annotator, args: &CodeArgs, profiles: &mut [Profile]) -> String {
    let functions = args.assembly.map_or(0, usize::from);
    let mut tally = AnnotationTally::default();
    for profile in profiles {
        tally += annotator.annotate(profile, functions);
    }
    let mut parts = Vec::new();
    if !args.source_path.is_empty() {
        parts.push(format!("the source of {} of {} files", tally.files_found, tally.files));
    }
    if functions > 0 {
        parts
            .push(format!("the instructions of {} of {} functions", tally.functions_listed, tally.functions));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("code: {}\n", parts.join(", ")),
    }
}
