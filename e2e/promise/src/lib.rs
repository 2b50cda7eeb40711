//! The attribute of end-to-end tests. `sidewinder_e2e_support::promise` has it too, beside the promises themselves.
#![forbid(unsafe_code)]

use proc_macro::{TokenStream, TokenTree};

/// Makes a function a test that shows a promise of the README.
///
/// - `#[promise(Probes)]`: `make test` runs it.
/// - `#[promise(Probes, test_all)]`: it shows more of the same, and only `make test-all` runs it. For the test harness it is
///   ignored: `--include-ignored` runs it, too, and `--ignored` runs only these.
#[proc_macro_attribute]
pub fn promise(arguments: TokenStream, test: TokenStream) -> TokenStream {
    let arguments: Vec<TokenTree> = arguments.into_iter().collect();
    let (name, ignored) = match &arguments[..] {
        [name @ TokenTree::Ident(_)] => (name, ""),
        [name @ TokenTree::Ident(_), TokenTree::Punct(comma), TokenTree::Ident(word)]
            if comma.as_char() == ',' && word.to_string() == "test_all" =>
        {
            (name, "#[ignore = \"only `make test-all` runs it\"]")
        }
        _ => {
            return tokens(
                "compile_error!(\"expected `#[promise(NAME)]` or `#[promise(NAME, test_all)]`\");",
            );
        }
    };
    // A name that is not in the list is an error at the name.
    let mut expanded = tokens(
        "const _: ::sidewinder_e2e_support::promise::Promise = ::sidewinder_e2e_support::promise::Promise::",
    );
    expanded.extend([name.clone()]);
    expanded.extend(tokens(&format!("; #[test] {ignored}")));
    expanded.extend(test);
    expanded
}

fn tokens(source: &str) -> TokenStream {
    source.parse().unwrap_or_default()
}
