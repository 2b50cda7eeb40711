//! Names of C++ and Rust: `void std::sort<int*>(int*, int*)`, `<alloc::vec::Vec<T> as core::iter::Extend<T>>::extend`.

use super::scan::{Piece, contents, pieces};

/// What is shown of a name.
#[derive(Clone, Copy)]
struct Detail {
    /// All namespaces or modules, not the last one alone.
    has_path: bool,
    arguments: Arguments,
    /// Parameters, and what stands behind them: `const`, `[clone .cold]`.
    has_parameters: bool,
}

/// What is shown of template arguments, generics, and the numbers of closures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    /// `<…>`
    Elided,
    /// Each without its path, and without its own arguments: `<Vec<…>, int>`.
    Shallow,
    /// Each without its path: `<Vec<Option<u8>>, int>`.
    Deep,
}

const DETAILS: [Detail; 6] = [
    Detail { has_path: false, arguments: Arguments::Elided, has_parameters: false },
    Detail { has_path: false, arguments: Arguments::Shallow, has_parameters: false },
    Detail { has_path: false, arguments: Arguments::Elided, has_parameters: true },
    Detail { has_path: true, arguments: Arguments::Elided, has_parameters: false },
    Detail { has_path: false, arguments: Arguments::Deep, has_parameters: false },
    Detail { has_path: true, arguments: Arguments::Deep, has_parameters: true },
];

/// Phrases of demanglers before a name. They make it another function.
const PREFIXES: [&str; 9] = [
    "non-virtual thunk to ",
    "virtual thunk to ",
    "covariant return thunk to ",
    "guard variable for ",
    "vtable for ",
    "typeinfo for ",
    "TLS wrapper function for ",
    "TLS init function for ",
    "transaction clone for ",
];
/// The suffix of a stub that jumps to the function.
const STUB: &str = "@plt";
const ANONYMOUS: &str = "(anonymous namespace)";

/// Less and less elided, from the last two components of the path on.
pub(super) fn candidates(name: &str) -> Vec<String> {
    let (name, stub) = name.strip_suffix(STUB).map_or((name, ""), |name| (name, STUB));
    let prefix = PREFIXES.into_iter().find(|prefix| name.starts_with(prefix)).unwrap_or_default();
    let Some(rest) = name.strip_prefix(prefix) else { return Vec::new() };
    // A location instead of a name: `[anonymous]+0x1000`, `libc.so.6+0x1234`, a path.
    if rest.starts_with(['[', '/']) || rest.contains("+0x") {
        return Vec::new();
    }
    let Some(pieces) = pieces(rest) else { return Vec::new() };
    let function = FunctionPath::parse(&pieces);
    let is_type = |piece: &Piece<'_>| matches!(piece, Piece::Group(group) if group.starts_with('<'));
    // Markup, or anything else that is no name.
    let is_name = |component: &&[Piece<'_>]| component.len() == 1 || !component.first().is_some_and(is_type);
    if function.components.iter().all(|component| component.iter().all(is_type))
        || !function.components.iter().all(is_name)
    {
        return Vec::new();
    }
    DETAILS.iter().map(|detail| format!("{prefix}{}{stub}", function.render(*detail))).collect()
}

/// Whether one of these is the outermost namespace, crate or module of a function, or of the type that it is a method of; if that is
/// in none, the trait's.
pub(crate) fn is_in_scope(name: &str, scopes: &[&str]) -> bool {
    let Some(pieces) = pieces(name) else { return false };
    let components = FunctionPath::parse(&pieces).components;
    let scope = match (components.first(), components.len()) {
        (Some([Piece::Group(group)]), _) if group.starts_with('<') => {
            let inside = contents(group);
            let (of_type, of_trait) = match inside.strip_prefix("impl ") {
                Some(inside) => inside.split_once(" for ").map_or((inside, ""), |(of, by)| (by, of)),
                None => inside.split_once(" as ").unwrap_or((inside, "")),
            };
            scope_of_type(of_type).or_else(|| scope_of_type(of_trait))
        }
        (Some([Piece::Text(text), ..]), 2..) => Some(*text),
        _ => None,
    };
    scope.is_some_and(|scope| scopes.contains(&scope))
}

/// The outermost scope of a type or a trait, which may be borrowed.
fn scope_of_type(text: &str) -> Option<&str> {
    let words = text.trim_start_matches(['&', '*', ' ', '[', '(']);
    let path = ["mut ", "const ", "dyn "].iter().fold(words, |words, word| words.trim_start_matches(word));
    let end = path.find(|character: char| !(character.is_alphanumeric() || character == '_'))?;
    let (scope, rest) = path.split_at(end);
    (rest.starts_with("::") && !scope.is_empty()).then_some(scope)
}

/// A name in its parts.
struct FunctionPath<'a> {
    components: Vec<&'a [Piece<'a>]>,
    parameters: Option<&'a str>,
    /// What follows the parameters.
    suffix: &'a [Piece<'a>],
}

impl<'a> FunctionPath<'a> {
    fn parse(pieces: &'a [Piece<'a>]) -> Self {
        let (head, parameters, suffix) = split_parameters(pieces);
        let path = head.get(path_start(head)..).unwrap_or_default();
        let (mut components, mut start) = (Vec::new(), 0);
        for (at, piece) in path.iter().enumerate() {
            // `f::<T>`: the arguments belong to what is before them.
            let is_end = *piece == Piece::Separator
                && !matches!(path.get(at + 1), Some(Piece::Group(group)) if group.starts_with('<') && !is_impl(group));
            if is_end {
                components.push(path.get(start..at).unwrap_or_default());
                start = at + 1;
            }
        }
        components.push(path.get(start..).unwrap_or_default());
        components.retain(|component| !component.is_empty());
        Self { components, parameters, suffix }
    }

    fn render(&self, detail: Detail) -> String {
        let visible = |component: &&&[Piece<'_>]| detail.has_path || !is_incidental(component);
        let components: Vec<_> = self.components.iter().filter(visible).copied().collect();
        let from = if detail.has_path { 0 } else { short_path_start(&components) };
        let shown = components.iter().skip(from).map(|component| component_text(component, detail.arguments));
        let mut out = shown.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("::");
        if detail.has_parameters {
            if let Some(parameters) = self.parameters {
                out.push_str(&format!("({})", short_types(contents(parameters), detail.arguments)));
            }
            self.suffix.iter().for_each(|piece| out.push_str(piece_text(*piece)));
        }
        out
    }
}

fn is_impl(group: &str) -> bool {
    group.starts_with("<impl ")
}

/// The part before the parameters, the parameters, and what follows them. Without parameters, what follows the path's last
/// component is a suffix of the demangler: `foo::bar [clone .cold]`.
fn split_parameters<'a>(pieces: &'a [Piece<'a>]) -> (&'a [Piece<'a>], Option<&'a str>, &'a [Piece<'a>]) {
    let last_separator = pieces.iter().rposition(|piece| *piece == Piece::Separator).map_or(0, |at| at + 1);
    let is_parameters = |piece: &Piece<'_>| matches!(piece, Piece::Group(group) if group.starts_with('('));
    // The first piece of a component can't be its parameters.
    let at = pieces.iter().rposition(is_parameters).filter(|at| *at > last_separator);
    if let Some((head, [Piece::Group(parameters), suffix @ ..])) =
        at.and_then(|at| pieces.split_at_checked(at))
    {
        return (head, Some(parameters), suffix);
    }
    let clone = pieces
        .iter()
        .position(|piece| matches!(piece, Piece::Group(group) if group.starts_with("[clone")))
        .map_or(pieces.len(), |at| at.saturating_sub(1));
    let (head, suffix) = pieces.split_at(clone);
    (head, None, suffix)
}

/// Where the path begins: after a return type.
fn path_start(head: &[Piece<'_>]) -> usize {
    // `operator new`, and conversions: `A::operator std::string`.
    let end = head.iter().position(is_operator_word).unwrap_or(head.len());
    let before = head.get(..end).unwrap_or(head);
    let is_return_type = |(at, piece): (usize, &Piece<'_>)| {
        // Qualifiers of an outer function, `f() const::{lambda()#1}`, and arguments: `operator<< <char>`.
        let is_qualifier = match head.get(at + 1) {
            Some(Piece::Text(text)) => matches!(*text, "const" | "volatile" | "&" | "&&"),
            Some(Piece::Group(group)) => group.starts_with('<'),
            _ => false,
        };
        (*piece == Piece::Space && !is_qualifier).then_some(at + 1)
    };
    before.iter().enumerate().rev().find_map(is_return_type).unwrap_or(0)
}

fn is_operator_word(piece: &Piece<'_>) -> bool {
    matches!(piece, Piece::Text(text) if text.ends_with("operator"))
}

/// Where the last named component and the one that contains it begin. Closures and operators of calls belong to what is before
/// them.
fn short_path_start(components: &[&[Piece<'_>]]) -> usize {
    let is_named = |component: &[Piece<'_>]| match component {
        [Piece::Group(group), ..] => !group.starts_with('{'),
        [Piece::Text(text), ..] => *text != "operator()" && !text.starts_with('\''),
        _ => false,
    };
    let named = components.iter().enumerate().filter(|(_, component)| is_named(component));
    named.map(|(at, _)| at).rev().nth(1).unwrap_or(0)
}

/// Versions of the standard library, anonymous namespaces, and the hash of a Rust symbol.
fn is_incidental(component: &[Piece<'_>]) -> bool {
    match component {
        [Piece::Text("__1" | "__cxx11" | "__ndk1")] | [Piece::Group(ANONYMOUS)] => true,
        [Piece::Text(text)] => {
            let digits = text.strip_prefix('h').unwrap_or_default();
            digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        }
        _ => false,
    }
}

fn component_text(component: &[Piece<'_>], arguments: Arguments) -> String {
    if let [Piece::Group(group)] = component
        && group.starts_with('<')
    {
        return match arguments {
            Arguments::Elided => self_type(contents(group), arguments),
            arguments => format!("<{}>", short_types(contents(group), arguments)),
        };
    }
    let is_operator = component.iter().any(is_operator_word);
    let texts =
        component.iter().take_while(|piece| is_operator || **piece != Piece::Space).map(
            |piece| match *piece {
                Piece::Group(group) if group.starts_with('<') => angle_group(contents(group), arguments),
                Piece::Group(group) if group.starts_with('{') => {
                    brace_group(group, arguments != Arguments::Elided)
                }
                // A component may consist of it; elsewhere it is the parameters of an outer function.
                Piece::Group(ANONYMOUS) => ANONYMOUS.to_owned(),
                // Parameters of an outer function, ABI tags, Rust's numbers of crates.
                Piece::Group(_) | Piece::Separator => String::new(),
                piece => piece_text(piece).to_owned(),
            },
        );
    texts.collect()
}

/// Template arguments or generics in their brackets, elided where that is shorter.
fn angle_group(inside: &str, arguments: Arguments) -> String {
    match (arguments, inside.chars().count()) {
        (Arguments::Elided, 2..) => "<…>".to_owned(),
        (Arguments::Elided, 0) => String::new(),
        (Arguments::Elided, 1) => format!("<{inside}>"),
        (Arguments::Shallow, _) => format!("<{}>", short_types(inside, Arguments::Elided)),
        (Arguments::Deep, _) => format!("<{}>", short_types(inside, Arguments::Deep)),
    }
}

/// `{closure}`, with its number if requested, and without the types of its parameters.
fn brace_group(group: &str, has_number: bool) -> String {
    let inside = contents(group);
    // `{{closure}}`, as Rust's older symbols have it.
    let inside = if inside.starts_with('{') && inside.ends_with('}') { contents(inside) } else { inside };
    let (name, number) = inside.rsplit_once('#').unwrap_or((inside, ""));
    let name = name.find('(').and_then(|end| name.get(..end)).unwrap_or(name);
    if has_number && !number.is_empty() { format!("{{{name}#{number}}}") } else { format!("{{{name}}}") }
}

/// The type of `<Type as Trait>` and `<impl Trait for Type>`.
fn self_type(inside: &str, arguments: Arguments) -> String {
    let Some(pieces) = pieces(inside) else { return inside.to_owned() };
    let word_at =
        |word| pieces.windows(3).position(|window| window == [Piece::Space, Piece::Text(word), Piece::Space]);
    let of_type = match (word_at("as"), pieces.as_slice()) {
        (Some(end), pieces) => pieces.get(..end),
        (None, [Piece::Text("impl"), Piece::Space, rest @ ..]) => {
            word_at("for").map_or(Some(rest), |at| pieces.get(at + 3..))
        }
        (None, pieces) => Some(pieces),
    };
    shorten(of_type.unwrap_or(&pieces), arguments)
}

/// A list of types, each without its path, and with these arguments.
fn short_types(list: &str, arguments: Arguments) -> String {
    let arguments = if arguments == Arguments::Shallow { Arguments::Elided } else { arguments };
    pieces(list).map_or_else(|| list.to_owned(), |pieces| shorten(&pieces, arguments))
}

fn shorten(pieces: &[Piece<'_>], arguments: Arguments) -> String {
    let mut out = String::new();
    // Where the path that is being written begins.
    let mut path = None;
    for piece in pieces {
        match *piece {
            Piece::Separator => out.truncate(path.unwrap_or(out.len())),
            Piece::Text(text) => {
                let name = text.trim_start_matches(['&', '*']);
                out.push_str(text);
                path = path.or(Some(out.len() - name.len()));
            }
            Piece::Comma | Piece::Space => {
                out.push_str(piece_text(*piece));
                path = None;
            }
            Piece::Group(group) if group.starts_with('<') && path.is_some() => {
                out.push_str(&angle_group(contents(group), arguments));
            }
            Piece::Group(group) => {
                path = path.or(Some(out.len()));
                match group.as_bytes() {
                    [b'<', ..] => out.push_str(&self_type(contents(group), arguments)),
                    [b'{', ..] => out.push_str(&brace_group(group, arguments != Arguments::Elided)),
                    [b'(', ..] => out.push_str(&format!("({})", short_types(contents(group), arguments))),
                    _ => out.push_str(&format!("[{}]", short_types(contents(group), arguments))),
                }
            }
        }
    }
    // `> >`, as older demanglers close two lists.
    out.truncate(out.trim_end().len());
    out
}

fn piece_text<'a>(piece: Piece<'a>) -> &'a str {
    match piece {
        Piece::Group(text) | Piece::Text(text) => text,
        Piece::Separator => "::",
        Piece::Comma => ",",
        Piece::Space => " ",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cpp_and_rust_are_shortened_step_by_step() {
        assert_eq!(
            candidates(
                "void std::__detail::_Executor<__gnu_cxx::__normal_iterator<char const*, std::string>, \
                 std::allocator<std::sub_match<char const*> >, true>::_M_dfs(std::__detail::_Mode, long) const"
            ),
            [
                "_Executor<…>::_M_dfs",
                "_Executor<__normal_iterator<…>, allocator<…>, true>::_M_dfs",
                "_Executor<…>::_M_dfs(_Mode, long) const",
                "std::__detail::_Executor<…>::_M_dfs",
                "_Executor<__normal_iterator<char const*, string>, allocator<sub_match<char const*>>, true>::_M_dfs",
                "std::__detail::_Executor<__normal_iterator<char const*, string>, allocator<sub_match<char const*>>, \
                 true>::_M_dfs(_Mode, long) const",
            ]
        );
        assert_eq!(
            candidates("<alloc::vec::Vec<T> as core::iter::Extend<&'a T>>::extend"),
            [
                "Vec<T>::extend",
                "<Vec<T> as Extend<…>>::extend",
                "Vec<T>::extend",
                "Vec<T>::extend",
                "<Vec<T> as Extend<&'a T>>::extend",
                "<Vec<T> as Extend<&'a T>>::extend",
            ]
        );
    }
}
