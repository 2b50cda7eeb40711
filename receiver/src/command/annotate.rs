//! `sidewinder annotate`: what the lines or the instructions of a function cost, in the terminal.

use std::sync::Arc;

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_render::{
    DisplayNames, FunctionCode, FunctionTotals, NameStyle, PageFunction, Profile, assembly_listing, escaped,
    functions, source_listing,
};
use tracing::level_filters::LevelFilter;

use super::view::load_profile;
use super::{CommandResult, code, log_to_stderr, print_all};
use crate::cli::AnnotateArgs;

/// The most names in an error about a name that several functions have.
const CANDIDATES_SHOWN: usize = 8;

pub(crate) fn annotate(args: &AnnotateArgs) -> CommandResult {
    log_to_stderr(LevelFilter::WARN);
    let debug_roots = code::debug_roots(&args.debuginfod)?;
    let annotator = code::open(&args.source_path, Arc::clone(&debug_roots))?;
    let profile = load_profile(&args.file, args.sample_type.as_deref(), &debug_roots)?;
    let names = DisplayNames::new([&profile], NameStyle::from(args.names));
    let function = find(&profile, &names, &args.function)?;
    let sources = annotator.source(&profile, &function);
    if args.assembly {
        let assembly = annotator.assembly(&profile, &function).map_err(|error| {
            Failure::new(ExitCause::Runtime, format!("can't list the instructions of {}", function.name))
                .with_source(error)
                .with_next_step("run it where the profiled binary is")
        })?;
        return print_all(&assembly_listing(&profile, &assembly, &sources));
    }
    let listing = FunctionCode::new(&profile, &function)
        .map_or_else(String::new, |code| source_listing(&profile, &code, &names, &sources));
    print_all(&listing)
}

/// The function that a text means: the one with this name, in full or short, else the only one whose name has it in it.
fn find(profile: &Profile, names: &DisplayNames, text: &str) -> Result<PageFunction, Failure> {
    let all = functions(profile);
    let is_named = |function: &&FunctionTotals<'_>| {
        escaped(&function.name) == text || names.shown(&function.name) == text
    };
    let mut found: Vec<_> = all.iter().filter(is_named).collect();
    if found.is_empty() {
        found = all.iter().filter(|function| function.name.contains(text)).collect();
    }
    match &*found {
        [] => Err(Failure::new(ExitCause::Usage, format!("the profile has no function {}", escaped(text)))
            .with_next_step("`sidewinder view` lists all functions")),
        [function] => Ok(PageFunction::new(&function.name, function.binary)),
        several => {
            let names: Vec<_> =
                several.iter().take(CANDIDATES_SHOWN).map(|function| escaped(&function.name)).collect();
            let (count, names) = (several.len(), names.join(", "));
            Err(Failure::new(
                ExitCause::Usage,
                format!("{count} functions have {} in their name: {names}", escaped(text)),
            )
            .with_next_step("give the whole name of one"))
        }
    }
}
