//! What a page shows of a function beside its place in the stacks: the text of its source, and its instructions.
//!
//! The costs of lines are in the stacks. Those of instructions are not, since a page has no addresses: they come with the
//! instructions.

use serde::Serialize;

use crate::escape::escaped_or_empty;

/// The code that a profile comes with. Names and texts may be hostile: a page shows them as text only.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Annotations {
    /// Parts of source files.
    pub sources: Vec<SourceExcerpt>,
    /// The instructions of some functions.
    pub assembly: Vec<FunctionAssembly>,
    /// Whether the server of the page answers `source/FUNCTION` and `assembly/FUNCTION` beside it: FUNCTION is the number of
    /// a function.
    pub are_served: bool,
}

/// A function of a page: its label, and the file name of its binary.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct PageFunction {
    /// As the page has it: escaped.
    pub name: String,
    /// The same; empty if there is none.
    pub binary: String,
}

/// The response to a page that asks for the source of a function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FunctionSource {
    /// The function.
    #[serde(flatten)]
    pub function: PageFunction,
    /// Parts of its files.
    pub sources: Vec<SourceExcerpt>,
}

/// The known parts of a source file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourceExcerpt {
    /// Its path, as the profile states it.
    #[serde(serialize_with = "serialize_escaped")]
    pub path: String,
    /// In the order of their lines, without overlap.
    pub parts: Vec<SourcePart>,
}

/// Consecutive lines of a source file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SourcePart {
    /// The number of the first one, from 1.
    pub line: u32,
    /// The lines, without their ends.
    pub text: Vec<String>,
}

impl SourcePart {
    /// Lines from this one on. What would have an effect instead of a glyph is escaped, but for tabulators.
    #[must_use]
    pub fn new<'a>(line: u32, text: impl IntoIterator<Item = &'a str>) -> Self {
        let escape = |line: &str| {
            let parts: Vec<_> = line.split('\t').map(escaped_or_empty).collect();
            parts.join("\t")
        };
        Self { line, text: text.into_iter().map(escape).collect() }
    }
}

/// The instructions of a function, and what each costs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FunctionAssembly {
    /// The function.
    #[serde(flatten)]
    pub function: PageFunction,
    /// The file with its code.
    #[serde(serialize_with = "serialize_escaped")]
    pub path: String,
    /// Its GNU build ID in hexadecimal; empty if it has none.
    pub build_id: String,
    /// The functions of the file that the instructions are in, in the order of addresses: one, or those that the function was
    /// inlined into.
    pub blocks: Vec<CodeBlock>,
    /// The paths of source files.
    pub files: Vec<String>,
    /// The instructions of the blocks.
    pub instructions: Instructions,
    /// How stacks are unwound.
    pub unwinding: UnwindingRanges,
    /// The events of each instruction.
    pub costs: InstructionCosts,
}

/// Events of instructions, by column: those with the same slice, thread, state and instruction are one row.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct InstructionCosts {
    /// The index of the time slice.
    pub slice: Vec<u32>,
    /// The index of the thread.
    pub thread: Vec<u32>,
    /// The index of the state plus one; 0 if it is unknown.
    pub state: Vec<u32>,
    /// The index of the instruction.
    pub instruction: Vec<u32>,
    /// Events that were taken at the instruction.
    pub own: Vec<u64>,
    /// These, and those in what the instruction calls. Recursion counts once.
    pub total: Vec<u64>,
}

/// A function in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CodeBlock {
    /// Its name.
    pub symbol: String,
    /// Its first address, as stated in the file.
    pub start: u64,
    /// The first address after it.
    pub end: u64,
}

/// Instructions in the order of addresses, by column.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Instructions {
    /// As stated in the file.
    pub address: Vec<u64>,
    /// In the notation of the architecture's manufacturer.
    pub text: Vec<String>,
    /// The line of its source; 0 if unknown.
    pub line: Vec<u32>,
    /// The index of the line's file in [`FunctionAssembly::files`] plus one; 0 if unknown.
    pub file: Vec<u32>,
}

/// How stacks are unwound from each of these addresses on, up to the next one.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct UnwindingRanges {
    /// As stated in the file.
    pub address: Vec<u64>,
    /// As `sidewinder inspect --ranges` prints it.
    pub method: Vec<String>,
}

fn serialize_escaped<S: serde::Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escaped_or_empty(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_line_cant_change_the_order_of_what_is_read() {
        let part = SourcePart::new(7, ["\tif (a) {", "", "/*\u{202e} } */\r"]);
        assert_eq!(part.text, ["\tif (a) {", "", "/*\\u{202e} } */\\u{d}"]);
    }
}
