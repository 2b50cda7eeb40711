//! Locations of named frames in a dictionary.

use std::collections::HashMap;

use sidewinder_address::{LoadSegment, Svma};
use sidewinder_message::FileInfo;
use sidewinder_process::FileId;
use sidewinder_profile::{
    BuildIds, Dictionary, Line, Location, LocationIndex, Mapping, MappingIndex, Marker, SourceLine,
};

use super::{CodeOrigin, FrameLocation, NamedFrame};

/// Adds locations, and remembers the mappings of their files.
#[derive(Debug, Default)]
pub(super) struct Locations {
    mappings: HashMap<(FileId, Svma), MappingIndex>,
}

impl Locations {
    /// The location of a named frame.
    pub(super) fn add(&mut self, dictionary: &mut Dictionary, named: &NamedFrame) -> LocationIndex {
        let (mapping, address) = match &named.location {
            FrameLocation::File { id, facts, svma, load } => {
                let mapping = self.mappings.entry((*id, load.svma));
                (*mapping.or_insert_with(|| add_mapping(dictionary, facts, load)), svma.0)
            }
            FrameLocation::Kernel { address } => (dictionary.add_file("[kernel]"), *address),
            FrameLocation::Anonymous { address } => (MappingIndex::default(), *address),
            FrameLocation::Vm => (MappingIndex::default(), 0),
        };
        let lines = match &*named.functions {
            [] => match &named.location {
                // The file and the offset are what is known.
                FrameLocation::File { facts, .. } if facts.hash.is_some() => Vec::new(),
                _ => vec![Line::new(dictionary.add_function_named(&named.name))],
            },
            functions => functions
                .iter()
                .map(|function| {
                    dictionary.add_line(&SourceLine {
                        function: &function.name.demangled,
                        system_name: &function.name.system_name,
                        path: function.path.as_deref().unwrap_or_default(),
                        line: function.line,
                        column: function.column,
                    })
                })
                .collect(),
        };
        let is_described = named.functions.is_empty()
            && matches!(named.origin, CodeOrigin::Native | CodeOrigin::Rust | CodeOrigin::Go);
        dictionary.add_location(&Location {
            mapping,
            address,
            frame_type: named.origin.frame_type(),
            is_generated: named.origin.is_generated(),
            is_guessed: named.is_guessed,
            is_unnamed: is_described,
            marker: named.is_marker.then_some(&Marker::Words),
            lines: &lines,
        })
    }
}

fn add_mapping(dictionary: &mut Dictionary, file: &FileInfo, load: &LoadSegment) -> MappingIndex {
    let htlhash = file.hash.map(|hash| hash.to_string());
    let gnu = file.build_ids.gnu.as_ref().map(ToString::to_string);
    let build_ids =
        BuildIds { htlhash: htlhash.as_deref(), gnu: gnu.as_deref(), go: file.build_ids.go.as_deref() };
    let mapping = Mapping {
        memory_start: load.svma.0,
        memory_limit: load.svma.0.saturating_add(load.size),
        file_offset: load.file_offset.0,
        filename: dictionary.add_string(&file.path),
        attributes: dictionary.add_build_ids(&build_ids),
    };
    dictionary.add_mapping(mapping)
}
