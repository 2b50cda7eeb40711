//! Units of the Unified Code for Units of Measure (UCUM).

/// The units of value types that `profiles.proto` lists.
const VALUE_UNITS: [&str; 3] = ["count", "nanoseconds", "bytes"];

/// The units that measurements of programs can have, case-sensitive.
const ATOMS: [&str; 16] =
    ["1", "%", "s", "min", "h", "d", "By", "bit", "Hz", "B", "m", "g", "K", "Cel", "J", "W"];
const PREFIXES: [&str; 12] = ["n", "u", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti"];

/// Whether `unit` may be the unit of a value type.
#[must_use]
pub fn is_value_unit(unit: &str) -> bool {
    VALUE_UNITS.contains(&unit) || is_ucum(unit)
}

/// Whether `unit` is a product or quotient of units, each with an optional prefix, exponent and
/// annotation.
pub(super) fn is_ucum(unit: &str) -> bool {
    !unit.is_empty() && unit.split(['.', '/']).all(is_term)
}

fn is_term(term: &str) -> bool {
    let (symbol, annotated) = match term.split_once('{') {
        Some((symbol, annotation)) => match annotation.strip_suffix('}') {
            Some(text) if !text.contains(['{', '}']) && text.bytes().all(|b| b.is_ascii_graphic()) => {
                (symbol, true)
            }
            _ => return false,
        },
        None => (term, false),
    };
    if symbol.is_empty() {
        return annotated;
    }
    if ATOMS.contains(&symbol) {
        return true;
    }
    let symbol = symbol.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    let is_atom = |symbol: &str| ATOMS.contains(&symbol);
    is_atom(symbol) || PREFIXES.iter().any(|prefix| symbol.strip_prefix(prefix).is_some_and(is_atom))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucum_is_told_from_words() {
        for unit in ["By", "KiBy", "ms", "ns", "1", "%", "{thread}", "By/s", "m/s2", "Hz", "By{heap}", "s-1"]
        {
            assert!(is_ucum(unit), "{unit}");
        }
        for word in ["", "bytes", "seconds", "nanoseconds", "By/", "{", "{a}{b}", "kilo", "b y"] {
            assert!(!is_ucum(word), "{word}");
        }
        assert!(is_value_unit("nanoseconds") && !is_value_unit("hertz"));
    }
}
