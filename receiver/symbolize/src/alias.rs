//! Chooses among several names of one address.

use std::cmp::Reverse;

/// The binding of a symbol, in descending order of preference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Binding {
    Global,
    Weak,
    Local,
}

/// Orders the names of one address: the smallest is shown.
///
/// 1. One that others can link against before a local one: `memcpy` before `__GI_memcpy`.
/// 2. Fewer leading underscores: libc's public names are weak aliases of underscored ones, so this
///    goes before the difference of global and weak (`read` before `__read`).
/// 3. Global before weak, then the longer name (it is more specific), then alphabetical order, so that the choice
///    does not depend on the order of the table.
pub(crate) fn preference(binding: Binding, name: &str) -> impl Ord + '_ {
    let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
    // A mangled name's underscore belongs to the mangling and doesn't mark a private name.
    let underscores = if name.starts_with("_Z") || name.starts_with("_R") { 0 } else { underscores };
    (binding == Binding::Local, underscores, binding, Reverse(name.len()), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best<'a>(names: &[(Binding, &'a str)]) -> &'a str {
        names.iter().min_by_key(|(binding, name)| preference(*binding, name)).unwrap().1
    }

    #[test]
    fn the_public_name_is_shown_whatever_the_order_of_the_table() {
        use Binding::{Global, Local, Weak};
        let mut names = [(Global, "__read"), (Weak, "read"), (Local, "re"), (Local, "__GI___read")];
        assert_eq!(best(&names), "read");
        names.reverse();
        assert_eq!(best(&names), "read");
    }

    #[test]
    fn equal_names_are_decided_by_binding_then_length_then_alphabet() {
        use Binding::{Global, Weak};
        assert_eq!(best(&[(Weak, "alpha"), (Global, "a")]), "a");
        assert_eq!(best(&[(Global, "a"), (Global, "alpha")]), "alpha");
        assert_eq!(best(&[(Global, "_ZN1AC2Ev"), (Global, "_ZN1AC1Ev")]), "_ZN1AC1Ev");
    }
}
