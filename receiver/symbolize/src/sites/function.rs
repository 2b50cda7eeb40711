//! Functions by name: their symbol's, or the one in their source.

use std::collections::BTreeMap;

use super::strings::SymbolStrings;
use super::{ProbeSite, SiteError};
use crate::arch;
use crate::demangle::demangle;
use crate::elf::{ElfLayout, TableLayout};
use crate::image::Image;
use sidewinder_unwind::{Architecture, begins_instruction};

/// The most symbols of one table that are looked at.
const SYMBOLS_MAX: u64 = 4 << 20;
/// The most names that are kept for a message.
const SIMILAR_MAX: usize = 64;
/// The most bytes of a function that are read to find out where its instructions begin.
const CODE_BYTES_MAX: u64 = 1 << 20;

/// A function of this name.
struct FoundFunction {
    symbol: String,
    size: u64,
    is_resolver: bool,
}

/// What is looked for, and what was found.
struct FunctionSearch<'name> {
    name: &'name str,
    /// The last word of the name, which its symbol contains, however it is mangled.
    word: &'name str,
    address: Option<u64>,
    /// By address.
    by_symbol: BTreeMap<u64, FoundFunction>,
    by_source_name: BTreeMap<u64, FoundFunction>,
    similar: Vec<String>,
}

/// The place at `offset` bytes from the start of a function, which is given by its symbol, by its name in C++ or Rust, with
/// or without parameters, or by its address as `0x...`.
///
/// # Errors
/// If the file has no such function, or several.
pub fn find_function(image: &Image, name: &str, offset: u64) -> Result<ProbeSite, SiteError> {
    find(image, &ElfLayout::read(image)?, name, offset)
}

/// The place of a function whose returns are probed, which is its start.
///
/// # Errors
/// As [`find_function`], or if it is Go's.
pub fn find_return(image: &Image, name: &str) -> Result<ProbeSite, SiteError> {
    let layout = ElfLayout::read(image)?;
    if layout.is_go {
        return Err(SiteError::GoReturn);
    }
    find(image, &layout, name, 0)
}

fn find(image: &Image, layout: &ElfLayout, name: &str, offset: u64) -> Result<ProbeSite, SiteError> {
    if layout.machine != arch::MACHINE.0 || !layout.is_little_endian_64() {
        return Err(SiteError::ForeignMachine);
    }
    let mut search = FunctionSearch::new(name);
    for table in [&layout.symtab, &layout.dynsym].into_iter().flatten() {
        search.look_through(image, layout, table)?;
    }
    let (svma, function) = search.finish()?;
    if function.is_resolver {
        return Err(SiteError::Resolver(function.symbol));
    }
    let in_file = layout
        .in_file(svma)
        .ok_or_else(|| SiteError::NoFunction { name: name.to_owned(), similar: Vec::new() })?;
    if offset > 0 {
        let code_bytes = function.size.min(in_file.end - in_file.start).min(CODE_BYTES_MAX);
        if offset >= code_bytes {
            return Err(SiteError::BeyondFunction { name: function.symbol, size: function.size, offset });
        }
        let mut code = vec![0; code_bytes as usize];
        let begins = image.read_exact_at(in_file.start, &mut code).is_ok()
            && begins_instruction(Architecture::HOST, &code, offset as usize);
        if !begins {
            return Err(SiteError::InsideInstruction { name: function.symbol, offset });
        }
    }
    Ok(ProbeSite { file_offset: in_file.start + offset, semaphore: None, arguments: Vec::new() })
}

impl<'name> FunctionSearch<'name> {
    fn new(name: &'name str) -> Self {
        let whole = name.split('(').next().unwrap_or(name);
        let word = identifiers(whole).last().unwrap_or(name);
        let address = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        Self {
            name,
            word,
            address,
            by_symbol: BTreeMap::new(),
            by_source_name: BTreeMap::new(),
            similar: Vec::new(),
        }
    }

    fn look_through(
        &mut self,
        image: &Image,
        layout: &ElfLayout,
        table: &TableLayout,
    ) -> Result<(), SiteError> {
        let mut strings = SymbolStrings::new(image, table.strings.clone());
        layout.for_each_symbol(image, table, SYMBOLS_MAX, |symbol| {
            if layout.code_section(symbol.svma).is_none() {
                return;
            }
            let Some(text) = strings.get(symbol.name) else { return };
            let found = || FoundFunction {
                symbol: text.to_owned(),
                size: symbol.size,
                is_resolver: symbol.is_resolver,
            };
            if text == self.name || self.address == Some(symbol.svma) {
                self.by_symbol.entry(symbol.svma).or_insert_with(found);
            } else if text.contains(self.word) {
                let source_name = demangle(text);
                if source_name == self.name || without_parameters(&source_name) == self.name {
                    self.by_source_name.entry(symbol.svma).or_insert_with(found);
                } else if self.similar.len() < SIMILAR_MAX
                    && !self.similar.iter().any(|known| *known == source_name)
                {
                    self.similar.push(source_name.into_owned());
                }
            }
        })?;
        Ok(())
    }

    /// The only function that was found, with its address.
    fn finish(self) -> Result<(u64, FoundFunction), SiteError> {
        let name = self.name.to_owned();
        let mut found = if self.by_symbol.is_empty() { self.by_source_name } else { self.by_symbol };
        match found.len() {
            0 => {
                let mut similar = self.similar;
                let has_word = |name: &str| identifiers(name).any(|part| part == self.word);
                // The shortest differ least.
                similar.sort_by_key(|name| (!has_word(name), name.len()));
                Err(SiteError::NoFunction { name, similar })
            }
            1 => found.pop_first().ok_or(SiteError::NoFunction { name, similar: Vec::new() }),
            _ => {
                let shown =
                    |(svma, function): (&u64, &FoundFunction)| format!("{} at {svma:#x}", function.symbol);
                Err(SiteError::Ambiguous { name, functions: found.iter().map(shown).collect() })
            }
        }
    }
}

/// The words of a name.
fn identifiers(name: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    name.split(move |letter| !is_part(letter)).filter(|word| !word.is_empty())
}

/// A C++ name up to its parameters: those that are not part of the name itself, as in `operator()`.
fn without_parameters(name: &str) -> &str {
    let start = name.find("operator()").map_or(0, |at| at + "operator()".len());
    name[start..].find('(').filter(|at| start + at > 0).map_or(name, |at| &name[..start + at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_cut_off_and_names_in_parentheses_stay() {
        for (name, short) in [
            ("a::b(int, char)", "a::b"),
            ("a::operator()(int)", "a::operator()"),
            ("(anonymous namespace)::f", "(anonymous namespace)::f"),
            ("main", "main"),
        ] {
            assert_eq!(without_parameters(name), short);
        }
    }

    #[test]
    fn the_word_that_is_looked_for_is_the_last_one_of_the_name() {
        let word = |name| FunctionSearch::new(name).word;
        assert_eq!(word("shop::Cart::add(int)"), "add");
        assert_eq!(word("main.checkout"), "checkout");
        assert_eq!(word("malloc"), "malloc");
    }
}
