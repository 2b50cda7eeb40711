//! Imported functions that never return.

use std::collections::BTreeSet;

use object::{File, Object as _, ObjectSection as _, ReadRef};

use crate::arch::{self, Instruction};
use crate::code::piece::CodeSlice;
use crate::elf::memory_of;
use crate::memory::{ADDRESS_BYTES, Reservation};
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::symbols::{for_each_dynamic_name, for_each_dynamic_relocation};

/// Functions of C and C++ runtimes that never return.
const NEVER_RETURN: [&[u8]; 31] = [
    b"abort",
    b"exit",
    b"_exit",
    b"_Exit",
    b"quick_exit",
    b"pthread_exit",
    b"longjmp",
    b"_longjmp",
    b"siglongjmp",
    b"__longjmp_chk",
    b"err",
    b"errx",
    b"verr",
    b"verrx",
    b"__assert",
    b"__assert_fail",
    b"__assert_perror_fail",
    b"__stack_chk_fail",
    b"__chk_fail",
    b"__fortify_fail",
    b"__libc_fatal",
    b"__libc_start_main",
    b"_Unwind_Resume",
    b"__cxa_throw",
    b"__cxa_rethrow",
    b"__cxa_bad_cast",
    b"__cxa_bad_typeid",
    b"__cxa_throw_bad_array_new_length",
    b"__cxa_throw_bad_array_length",
    b"__cxa_pure_virtual",
    b"__cxa_call_terminate",
];

/// `std::terminate()`, and the common part of the names of `std::__throw_bad_alloc()` and similar functions.
const TERMINATE: &[u8] = b"_ZSt9terminatev";
const THROW: &[u8] = b"__throw_";

/// The imported functions that never return, as calls refer to them, and other facts from the imports.
pub(super) struct Imports<'memory> {
    /// Words of memory that hold the addresses of these functions.
    words: BTreeSet<u32>,
    /// Entries of linkage tables that jump to these functions.
    entries: BTreeSet<u32>,
    /// Whether the file uses the runtime system of Haskell: all compiled Haskell code imports these functions.
    pub(super) have_haskell: bool,
    reserved: Reservation<'memory>,
}

impl<'memory> Imports<'memory> {
    /// What doesn't fit the memory is left out.
    pub(super) fn from_file<R: ReadFile<'memory>>(file: &File<'memory, R>, code: &CodeRanges) -> Self {
        let (words, entries) = (BTreeSet::new(), BTreeSet::new());
        let mut imports = Self { words, entries, have_haskell: false, reserved: memory_of(file).nothing() };
        let mut meant = BTreeSet::new();
        for_each_dynamic_name(file, |index, name| {
            if never_returns(name) && imports.reserved.grow(2 * ADDRESS_BYTES) {
                meant.insert(index);
            }
            imports.have_haskell |= name.starts_with(b"stg_ap_");
        });
        for_each_dynamic_relocation(file, |at, symbol| {
            if meant.contains(&symbol)
                && let Some(word) = code.offset(at)
                && imports.reserved.grow(ADDRESS_BYTES)
            {
                imports.words.insert(word);
            }
        });
        for section in [".plt", ".plt.sec", ".plt.got"] {
            imports.add_entries(file, code, section);
        }
        imports
    }

    fn add_entries<'data, R: ReadRef<'data>>(
        &mut self,
        file: &File<'data, R>,
        code: &CodeRanges,
        section: &str,
    ) {
        let Some(section) = file.section_by_name(section) else { return };
        let Some((start, bytes)) = code.offset(section.address()).zip(section.data().ok()) else { return };
        let piece = CodeSlice { architecture: code.architecture(), start, bytes };
        for entry in (start..piece.end()).step_by(8) {
            let word = arch::word_jumped_through(&piece, entry, code.base());
            if word.is_some_and(|word| self.is_word(word)) && self.reserved.grow(ADDRESS_BYTES) {
                self.entries.insert(entry);
            }
        }
    }

    /// Whether a call is to one of these functions.
    pub(super) fn never_return(&self, call: &Instruction, target: Option<u32>) -> bool {
        match target {
            Some(target) => self.entries.contains(&target),
            None => call.stated_word().is_some_and(|word| self.is_word(word)),
        }
    }

    fn is_word(&self, address: u64) -> bool {
        u32::try_from(address).is_ok_and(|at| self.words.contains(&at))
    }
}

pub(super) fn never_returns(name: &[u8]) -> bool {
    NEVER_RETURN.contains(&name)
        || name == TERMINATE
        || (name.starts_with(b"_ZSt") && name.windows(THROW.len()).any(|part| part == THROW))
}
