//! Locations of the OTLP dictionary.
//!
//! Input: frames with their names, or markers. Output: indices of locations, whose mappings, functions and lines are in the
//! dictionary.

use sidewinder_otlp::ReportBuilder;
use sidewinder_otlp::builder::{Function, Line, LocationIndex, Mapping, MappingBuildIds, StackFrame};
use sidewinder_profile::Truncation;

use crate::naming::{FrameLocation, NamedFrame, marker_attribute};

/// The location of a named frame.
pub(super) fn location(builder: &mut ReportBuilder, named: &NamedFrame) -> LocationIndex {
    let (mapping, address) = match &named.location {
        FrameLocation::File { facts, svma, load, .. } => {
            // The hash identifies the file of a mapping. For a file that could not be read, the name of the frame has the
            // path.
            let mapping = facts.hash.map(|hash| {
                builder.mapping(&Mapping {
                    memory_start: load.svma.0,
                    memory_limit: load.svma.0.saturating_add(load.size),
                    file_offset: load.file_offset.0,
                    filename: &facts.path,
                    build_ids: MappingBuildIds {
                        htlhash: &hash.to_string(),
                        gnu: facts.build_ids.gnu.as_ref().map(ToString::to_string).as_deref(),
                        go: facts.build_ids.go.as_deref(),
                    },
                })
            });
            (mapping, svma.0)
        }
        FrameLocation::Kernel { address } | FrameLocation::Anonymous { address } => (None, *address),
        FrameLocation::Vm => (None, 0),
    };
    // A location without a name is left to backends that have symbols: it has the file and the address.
    let lines: Vec<Line> = match &*named.functions {
        [] if mapping.is_some() => Vec::new(),
        [] => vec![Line::new(builder.function(&Function { name: &named.name, ..Function::default() }))],
        functions => functions
            .iter()
            .map(|function| Line {
                function: builder.function(&Function {
                    name: &function.name.demangled,
                    system_name: &function.name.system_name,
                    filename: function.path.as_deref().unwrap_or_default(),
                    ..Function::default()
                }),
                line: function.line,
                column: function.column,
            })
            .collect(),
    };
    let unnamed = named.functions.is_empty() && mapping.is_none();
    let names = named.functions.iter().map(|function| &*function.name.demangled);
    let is_marker = marker_attribute(named.is_marker, names.chain(unnamed.then_some(&*named.name)));
    builder.location(&StackFrame {
        mapping,
        address,
        frame_type: named.origin.frame_type(),
        is_generated: named.origin.is_generated(),
        is_guessed: named.is_guessed,
        is_marker,
        lines: &lines,
    })
}

/// The location that stands for missing frames.
pub(super) fn truncation_location(builder: &mut ReportBuilder, truncation: &Truncation) -> LocationIndex {
    let function = builder.function(&Function { name: &truncation.wire_name(), ..Function::default() });
    builder.location(&StackFrame {
        is_marker: Some(true),
        lines: &[Line::new(function)],
        ..StackFrame::default()
    })
}
