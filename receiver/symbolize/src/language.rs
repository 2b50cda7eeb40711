//! The language that a symbol was compiled from, as far as its name reveals it.

/// The source language of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Language {
    /// Mangled by rustc, in the legacy or the v0 form.
    Rust,
    /// Compiled by the Go toolchain.
    Go,
    /// Mangled according to the Itanium C++ ABI.
    Cpp,
    /// Not mangled: C, assembly, or anything with C linkage.
    Unknown,
}

impl Language {
    /// The language that the mangling of a symbol's name reveals.
    #[must_use]
    pub fn from_symbol(name: &str) -> Self {
        if is_rust(name) {
            Self::Rust
        } else if name.starts_with("_Z") || name.starts_with("___Z") {
            Self::Cpp
        } else {
            Self::Unknown
        }
    }
}

/// `_R` (v0) or `_ZN…17h<16 hexadecimal digits>E` (legacy), maybe with a suffix that LLVM added.
fn is_rust(name: &str) -> bool {
    if let Some(rest) = name.strip_prefix("_R") {
        return rest.starts_with(|first: char| first.is_ascii_uppercase() || first.is_ascii_digit())
            && rustc_demangle::try_demangle(name).is_ok();
    }
    let Some(rest) = name.strip_prefix("_ZN") else { return false };
    let path = rest.split('.').next().unwrap_or(rest);
    // A path may contain `.` itself (`..` for `::`), so the hash is also looked for in the whole name.
    [path, rest].into_iter().any(|path| {
        path.strip_suffix('E')
            .and_then(|path| path.split_at_checked(path.len().wrapping_sub(19)))
            .is_some_and(|(_, hash)| {
                hash.strip_prefix("17h")
                    .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mangled_name_tells_its_language() {
        let legacy = "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE";
        assert_eq!(Language::from_symbol(legacy), Language::Rust);
        assert_eq!(Language::from_symbol(&format!("{legacy}.llvm.123")), Language::Rust);
        assert_eq!(
            Language::from_symbol("_ZN71_$LT$a..b$u20$as$u20$c..d$GT$1f17h0123456789abcdefE"),
            Language::Rust
        );
        assert_eq!(Language::from_symbol("_RNvC6_123foo3bar"), Language::Rust);
        assert_eq!(Language::from_symbol("_ZN4core3fmtEv"), Language::Cpp);
        assert_eq!(Language::from_symbol("_ZdlPvm"), Language::Cpp);
        for plain in ["main", "", "_", "_R", "_Rest", "_ZN", "_ZNE", "runtime.mallocgc"] {
            assert_ne!(Language::from_symbol(plain), Language::Rust, "{plain}");
        }
    }
}
