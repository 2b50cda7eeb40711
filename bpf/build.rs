//! Compiles the eBPF programs into a skeleton, and `c/intf.h` into its Rust view.
//!
//! The environment variable `CLANG` names the compiler of the programs; the default is `clang`.

use std::env;
use std::fs;
use std::path::PathBuf;

use bindgen::callbacks::{DeriveInfo, ParseCallbacks, TypeKind};
use libbpf_cargo::SkeletonBuilder;

include!("programs.rs");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=c");
    println!("cargo::rerun-if-changed=programs.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let of_architecture = architecture_arguments(&arch, env::consts::ARCH)?;
    let [target, headers] = of_architecture.each_ref().map(String::as_str);
    // The programs' line information contains file names; they must not depend on the build directory.
    let source_names = format!("-ffile-prefix-map={}=bpf", env::var("CARGO_MANIFEST_DIR")?);

    let has_test_programs = env::var_os("CARGO_FEATURE_TEST_PROGRAMS").is_some();
    let test_programs = has_test_programs.then_some("-DSW_TEST_PROGRAMS");

    let mut skeletons = String::new();
    for object in OBJECTS {
        let of_this_build = [target, headers, &source_names];
        SkeletonBuilder::new()
            .source(format!("c/{object}.bpf.c"))
            .obj(out.join(format!("{object}.bpf.o")))
            .clang(&clang)
            .clang_args(COMPILER_ARGUMENTS.into_iter().chain(of_this_build).chain(test_programs))
            .build_and_generate(out.join(format!("{object}.skel.rs")))?;
        skeletons += &format!(
            "pub(crate) mod {object} {{\n    \
             include!(concat!(env!(\"OUT_DIR\"), \"/{object}.skel.rs\"));\n}}\n"
        );
    }
    fs::write(out.join("skeleton.rs"), skeletons)?;

    let view = bindgen::Builder::default()
        .parse_callbacks(Box::new(Derives))
        .header("c/intf.h")
        .clang_args([target, headers].into_iter().chain(test_programs))
        .use_core()
        .allowlist_item("sw_.*|SW_.*")
        .prepend_enum_name(false)
        // A Rust enum, so that code which doesn't handle a kind fails to compile.
        .rustified_enum("sw_sample_kind|sw_wait_state|sw_wait_cause|sw_futex_use")
        .derive_default(true)
        .layout_tests(true)
        .wrap_unsafe_ops(true)
        .generate()?;
    fs::write(out.join("intf.rs"), with_plain_helpers(view.to_string()))?;

    fs::write(out.join("outcome.rs"), outcomes(&fs::read_to_string("c/intf/outcomes.h")?)?)?;
    Ok(())
}

/// Derives that make structures of integers, without padding, readable from bytes and writable as bytes.
const PLAIN: &str = "zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable";

/// Derives traits for the types of `c/intf.h`, in addition to bindgen's defaults.
#[derive(Debug)]
struct Derives;

impl ParseCallbacks for Derives {
    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        if info.kind == TypeKind::Enum {
            return vec!["zerocopy::TryFromBytes".to_owned()];
        }
        // Rules and layouts are compared by value.
        let compared = if matches!(
            info.name,
            "sw_rule" | "sw_cpython" | "sw_hotspot" | "sw_code_heap" | "sw_v8" | "sw_file_range"
        ) {
            ", PartialEq, Eq, Hash"
        } else {
            ""
        };
        vec![format!("{PLAIN}{compared}")]
    }
}

/// Adds the plain derives to bindgen's helper types for bit fields and flexible array members: bindgen doesn't call
/// `add_derives` for those.
fn with_plain_helpers(code: String) -> String {
    ["pub struct __BindgenBitfieldUnit", "pub struct __IncompleteArrayField"]
        .into_iter()
        .fold(code, |code, helper| code.replace(helper, &format!("#[derive({PLAIN})]\n{helper}")))
}

/// Generates Rust from the X-macro list of outcomes, so that there is one list, from which metric labels, markers and
/// documentation take their words.
fn outcomes(header: &str) -> Result<String, String> {
    let mut rows = Vec::new();
    let mut lines = header.lines().skip_while(|line| !line.starts_with("#define SW_OUTCOMES(X)"));
    lines.next().ok_or("no SW_OUTCOMES in the header")?;
    for line in lines {
        let row = line.trim().trim_end_matches('\\').trim();
        let parts = row.strip_prefix("X(").and_then(|row| row.strip_suffix(')'));
        let mut parts = parts.ok_or_else(|| format!("not an outcome: {row}"))?.splitn(3, ", ");
        // Both texts may have commas.
        let texts = |texts: &str| {
            let (summary, meaning) = texts.split_once("\", \"")?;
            Some((format!("{summary}\""), format!("\"{meaning}")))
        };
        let (Some(name), Some(is_loss), Some((summary, meaning))) =
            (parts.next(), parts.next(), parts.next().and_then(texts))
        else {
            return Err(format!("an outcome needs a name, 0 or 1, a summary and a meaning: {row}"));
        };
        rows.push((name.to_owned(), is_loss == "1", summary, meaning));
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    let camel = |name: &str| -> String {
        let word = |w: &str| w[..1].to_owned() + &w[1..].to_lowercase();
        name.split('_').map(word).collect()
    };
    let mut code = String::from(
        "/// How an interrupt ended. Generated from `c/intf/outcomes.h`, which holds the closed list.\n\
         #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]\n#[repr(u8)]\npub enum Outcome {\n",
    );
    for (name, .., meaning) in &rows {
        code += &format!("    #[doc = {meaning}]\n    {},\n", camel(name));
    }
    code += "}\n\nimpl Outcome {\n    /// Every outcome, in numeric order.\n    pub const ALL: &[Self] = &[";
    for (name, ..) in &rows {
        code += &format!("Self::{}, ", camel(name));
    }
    code += "];\n    const WORDS: &[Words] = &[\n";
    for (name, is_loss, summary, meaning) in &rows {
        code += &format!(
            "        Words {{ label: \"{}\", is_loss: {is_loss}, summary: {summary}, meaning: {meaning} }},\n",
            name.to_lowercase()
        );
    }
    code += "    ];\n}\n";
    Ok(code)
}
