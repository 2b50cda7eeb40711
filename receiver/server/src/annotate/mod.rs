//! The code of profiled functions: the text of their sources, and their instructions.
//!
//! Input: a [`Profile`], source files below the directories that the user names, and the binaries that the profile names, if
//! they are still the same. Pages ask for a function at a time ([`Annotator::respond`]); a page in a file comes with what it
//! is to show ([`Annotator::annotate`]).

mod assembly;
mod assembly_error;
mod binary;
mod sources;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex};

use http::StatusCode;
use sidewinder_base::causes::error_chain;
use sidewinder_debug_files::DebugRoots;
use sidewinder_debug_files::debuginfod::BuildIdText;
use sidewinder_render::{
    FunctionAssembly, FunctionCode, FunctionSource, PageFunction, Profile, SourceExcerpt, lines_by_file,
};
use tracing::warn;

use self::assembly::Listing;
pub(crate) use self::assembly_error::AssemblyError;
use self::sources::excerpt;
pub use self::sources::{SourceDirectories, SourcePath};
use crate::http_server::PageResponse;

/// The most bytes of source text in a page.
const SOURCE_BYTES_MAX: usize = 4 << 20;

/// For how many binaries a server is asked for one source file.
const BINARIES_MAX: usize = 3;

/// Reads the code of functions.
#[derive(Debug)]
pub struct Annotator {
    sources: SourceDirectories,
    debug_roots: Arc<DebugRoots>,
    last_listing: Mutex<Option<Arc<Listing>>>,
}

/// How much of what a page is to show was found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AnnotationTally {
    /// Source files that lines of the profile are of.
    pub files: usize,
    /// Of these, those whose text was found.
    pub files_found: usize,
    /// Functions whose instructions were asked for.
    pub functions: usize,
    /// Of these, those whose instructions were listed.
    pub functions_listed: usize,
}

impl AddAssign for AnnotationTally {
    fn add_assign(&mut self, more: Self) {
        let Self { files, files_found, functions, functions_listed } = more;
        self.files += files;
        self.files_found += files_found;
        self.functions += functions;
        self.functions_listed += functions_listed;
    }
}

impl Annotator {
    /// Reads sources below these directories.
    pub fn new(sources: SourceDirectories, debug_roots: Arc<DebugRoots>) -> Self {
        Self { sources, debug_roots, last_listing: Mutex::default() }
    }

    /// The response to `source/FUNCTION` or `assembly/FUNCTION`; `None` if it is another path. `function_with_number` is the
    /// function with a number, and the profile that it is in.
    pub fn respond<'a>(
        &self,
        path: &str,
        function_with_number: impl FnOnce(usize) -> Option<(PageFunction, Cow<'a, Profile>)>,
    ) -> Option<PageResponse> {
        let (form, number) = path.split_once('/')?;
        if !matches!(form, "source" | "assembly") {
            return None;
        }
        let (function, profile) = function_with_number(number.parse().ok()?)?;
        // Reading files may take seconds, in which other pages are to be answered.
        let code = tokio::task::block_in_place(|| match form {
            "source" => {
                let sources = self.source(&profile, &function);
                Ok(serde_json::to_vec(&FunctionSource { function, sources }))
            }
            _ => self.assembly(&profile, &function).map(|assembly| serde_json::to_vec(&assembly)),
        });
        Some(match code {
            Ok(Ok(json)) => PageResponse::ok("application/json", json),
            Ok(Err(error)) => PageResponse::text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            Err(error) => PageResponse::text(StatusCode::NOT_FOUND, &error_chain(&error)),
        })
    }

    /// The text of the lines of a function that have samples, with their neighbours.
    pub fn source(&self, profile: &Profile, function: &PageFunction) -> Vec<SourceExcerpt> {
        let Some(code) = FunctionCode::new(profile, function) else { return Vec::new() };
        let read = |(path, lines): (&str, BTreeSet<u32>)| {
            let here = self.sources.excerpt(path, &lines);
            here.or_else(|| excerpt(path, &self.downloaded_source(profile, path)?, &lines))
        };
        code.lines().into_iter().filter_map(read).collect()
    }

    /// The text of a source file, from a server that has it for a binary with lines of it.
    fn downloaded_source(&self, profile: &Profile, path: &str) -> Option<String> {
        let servers = self.debug_roots.debuginfod()?;
        let dictionary = &profile.dictionary;
        let frames = dictionary.frames().filter(|frame| frame.path() == path);
        let mappings = frames.filter(|frame| frame.mapping().is_some()).map(|frame| frame.location.mapping);
        let mappings: BTreeSet<_> = mappings.collect();
        mappings.into_iter().take(BINARIES_MAX).find_map(|mapping| {
            let build_id = dictionary.build_ids(&dictionary.mapping(mapping)).gnu?;
            servers.source(&BuildIdText::new(build_id)?, path)
        })
    }

    /// The instructions of a function, with what each costs.
    ///
    /// # Errors
    /// If its binary is not there any more, or does not say where its functions are.
    pub fn assembly(
        &self,
        profile: &Profile,
        function: &PageFunction,
    ) -> Result<FunctionAssembly, AssemblyError> {
        assembly::assembly(profile, function, &self.debug_roots, &self.last_listing)
    }

    /// Adds the text of all lines that have samples to a profile, those with the most events first as long as there is room,
    /// and the instructions of its hottest functions.
    pub fn annotate(&self, profile: &mut Profile, function_count: usize) -> AnnotationTally {
        let mut tally = AnnotationTally::default();
        if !self.sources.is_empty() {
            let mut left_bytes = SOURCE_BYTES_MAX;
            let mut found = Vec::new();
            for (path, lines) in lines_by_file(profile) {
                tally.files += 1;
                let Some(excerpt) = self.sources.excerpt(path, &lines) else { continue };
                let Some(left) = left_bytes.checked_sub(text_bytes(&excerpt)) else { continue };
                left_bytes = left;
                tally.files_found += 1;
                found.push(excerpt);
            }
            profile.annotations.sources = found;
        }
        let functions = PageFunction::hottest(profile, function_count);
        tally.functions = functions.len();
        let list = |function: &PageFunction| {
            let listed = self.assembly(profile, function);
            listed.inspect_err(|error| warn!("no assembly of {}: {}", function.name, error_chain(error))).ok()
        };
        let assembly: Vec<_> = functions.iter().filter_map(list).collect();
        tally.functions_listed = assembly.len();
        profile.annotations.assembly = assembly;
        tally
    }
}

fn text_bytes(excerpt: &SourceExcerpt) -> usize {
    excerpt.parts.iter().flat_map(|part| &part.text).map(String::len).sum()
}
