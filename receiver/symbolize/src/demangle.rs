//! Demangling of symbol names.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The longest name that [`demangle`] returns, in bytes. Substitutions let a mangled name of a few
/// hundred bytes stand for one of gigabytes.
const OUTPUT_LIMIT_BYTES: usize = 4096;

/// The suffix of a function's name when it names the stub that jumps to the function.
pub(crate) const PLT_SUFFIX: &str = "@plt";

/// How deep a mangled C++ name may nest.
const RECURSION_LIMIT: u32 = 128;

/// The name as its source spells it, without Rust's hash.
///
/// Rust (legacy and v0) and C++ (Itanium) are understood; any other name, a malformed one and one whose
/// demangled form would be longer than 4 KiB are returned as they are.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    let (mangled, suffix) = name.strip_suffix(PLT_SUFFIX).map_or((name, ""), |mangled| (mangled, PLT_SUFFIX));
    match rust(mangled).or_else(|| cpp(mangled)) {
        Some(demangled) => Cow::Owned(demangled + suffix),
        None => Cow::Borrowed(name),
    }
}

fn rust(name: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(name).ok()?;
    let mut out = BoundedOutput(String::new());
    write!(out, "{symbol:#}").ok()?;
    Some(out.0)
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("___Z") {
        return None;
    }
    let parsing = cpp_demangle::ParseOptions::default().recursion_limit(RECURSION_LIMIT);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &parsing).ok()?;
    let writing = cpp_demangle::DemangleOptions::new().recursion_limit(RECURSION_LIMIT);
    let mut out = BoundedOutput(String::new());
    symbol.structured_demangle(&mut out, &writing).ok()?;
    Some(out.0)
}

/// Rejects writes beyond [`OUTPUT_LIMIT_BYTES`], which stops the demangler.
struct BoundedOutput(String);

impl Write for BoundedOutput {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > OUTPUT_LIMIT_BYTES - PLT_SUFFIX.len() {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_manglings_are_undone_and_others_stay() {
        for (mangled, plain) in [
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.77", "core::fmt::Formatter::pad"),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back(int&&)"),
            ("_ZN3foo3barEv.cold", "foo::bar() [clone .cold]"),
            ("_ZdlPvm@plt", "operator delete(void*, unsigned long)@plt"),
            ("memcpy@plt", "memcpy@plt"),
            ("main", "main"),
            ("runtime.mallocgc", "runtime.mallocgc"),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(demangle(mangled), plain);
        }
    }

    #[test]
    fn a_name_that_would_explode_stays_mangled() {
        // Each substitution doubles the type before it: 2^30 names if written out.
        let mut name = String::from("_Z1fSt4pairIiiE");
        for level in 0..30 {
            let seq = if level == 0 { String::from("S_") } else { format!("S{}_", base36(level - 1)) };
            name.push_str(&format!("St4pairI{seq}{seq}E"));
        }
        let shown = demangle(&name);
        assert!(shown.len() <= OUTPUT_LIMIT_BYTES);
    }

    fn base36(number: usize) -> char {
        char::from_digit(number as u32, 36).unwrap().to_ascii_uppercase()
    }

    #[test]
    fn nesting_does_not_exhaust_the_stack() {
        let deep = format!("_Z1f{}i", "P".repeat(4000));
        assert!(demangle(&deep).len() <= OUTPUT_LIMIT_BYTES.max(deep.len()));
        let deep = format!("_RNvC1a1b{}", "NvNv".repeat(1000));
        assert!(demangle(&deep).len() <= OUTPUT_LIMIT_BYTES.max(deep.len()));
    }

    proptest! {
        #[test]
        fn no_name_panics_or_grows_without_bound(name in "(_Z|_R|_ZN|)[A-Za-z0-9_$.]{0,200}") {
            prop_assert!(demangle(&name).len() <= OUTPUT_LIMIT_BYTES.max(name.len()));
        }
    }
}
