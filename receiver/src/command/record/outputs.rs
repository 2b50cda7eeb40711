//! The files of a recording.

use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sidewinder_base::exit::Failure;
use sidewinder_kind::{Kind, KindSet};
use sidewinder_render::{NameStyle, Profile, ProfileFormat, RenderError};
use sidewinder_server::annotate::Annotator;

use crate::cli::CodeArgs;
use crate::command::code;
use crate::output::{Output, OutputFormat};

/// Where the profiles go: OTLP has all kinds in one file, other formats have a file for each, and pprof one for both kinds of waits
/// for locks.
pub(super) struct Outputs {
    first: Output,
    /// Those of the following kinds.
    others: Vec<Output>,
    /// How many kinds are in each; empty for OTLP.
    kinds_in_each: Vec<usize>,
    /// What reads the code that pages show.
    annotator: Arc<Annotator>,
}

impl Outputs {
    /// For these kinds of profile.
    ///
    /// # Errors
    /// If a file can't be written, or the path is that of a device and there have to be several.
    pub(super) fn new(
        path: &Path,
        kinds: &KindSet,
        format: OutputFormat,
        annotator: Arc<Annotator>,
    ) -> Result<Self, Failure> {
        let first = Output::new(path)?;
        let kinds: Vec<_> = kinds.iter().collect();
        let files: Vec<&[Kind]> = match format {
            OutputFormat::Otlp => Vec::new(),
            OutputFormat::Rendered(format) => kinds_by_file(&kinds, format).collect(),
        };
        let others = files.iter().skip(1).map(|file| first.of_kind(file_name(file)));
        let others = others.collect::<Result<_, _>>()?;
        Ok(Self { first, others, kinds_in_each: files.iter().map(|file| file.len()).collect(), annotator })
    }

    /// The file that the user named.
    pub(super) fn first(&self) -> &Output {
        &self.first
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Output> {
        iter::once(&self.first).chain(&self.others)
    }

    /// Adds the code that was asked for to profiles. Returns a line that says how much of it was found; empty if nothing was
    /// asked for.
    pub(super) fn annotate(&self, args: &CodeArgs, profiles: &mut [Profile]) -> String {
        code::annotate(&self.annotator, args, profiles)
    }

    /// Writes the profile of each kind, in the order of the kinds, with such names. Returns the files that were written: there is no
    /// picture of a kind without samples.
    ///
    /// # Errors
    /// If a file can't be written.
    pub(super) fn write(
        &self,
        profiles: &[Profile],
        (format, names): (ProfileFormat, NameStyle),
        stop: &AtomicBool,
    ) -> Result<Vec<&Output>, Failure> {
        let mut rest = profiles;
        let mut written = Vec::new();
        for (kinds, output) in self.kinds_in_each.iter().zip(self.iter()) {
            let (in_file, others) = rest.split_at((*kinds).min(rest.len()));
            rest = others;
            if format == ProfileFormat::Svg && in_file.iter().all(|profile| profile.total_count() == 0) {
                continue;
            }
            output.write(stop, |out| match in_file {
                [first, second] => {
                    sidewinder_render::write_pprof_pair(first, second, out).map_err(RenderError::from)
                }
                in_file => in_file.iter().try_for_each(|of| sidewinder_render::write(of, format, names, out)),
            })?;
            written.push(output);
        }
        Ok(written)
    }
}

/// The kinds of each file of a format.
fn kinds_by_file(kinds: &[Kind], format: ProfileFormat) -> impl Iterator<Item = &[Kind]> {
    kinds.chunk_by(move |before, kind| {
        format == ProfileFormat::Pprof && (*before, *kind) == (Kind::LockContentions, Kind::LockDelay)
    })
}

fn file_name(kinds: &[Kind]) -> &'static str {
    match kinds {
        [kind] => kind.descriptor().value_type.name,
        _ => "locks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_locks_are_one_file_of_pprof_and_two_of_other_formats() {
        let kinds: Vec<_> = KindSet::new(Kind::OffCpu).with_lock_wakers().iter().collect();
        let names = |format| kinds_by_file(&kinds, format).map(file_name).collect::<Vec<_>>();
        assert_eq!(names(ProfileFormat::Pprof), ["off_cpu", "locks", "waker_delay"]);
        assert_eq!(names(ProfileFormat::Folded), ["off_cpu", "contentions", "delay", "waker_delay"]);
    }
}
