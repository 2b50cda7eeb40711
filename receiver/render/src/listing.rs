//! The costs of a function's lines and instructions, for a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::annotation::{FunctionAssembly, SourceExcerpt};
use crate::escape::{escaped, escaped_or_empty};
use crate::function_code::{FunctionCode, LineCost};
use crate::names::DisplayNames;
use crate::profile::Profile;
use crate::summary::percent;

/// The lines of a function, by file: their self and total shares of all events, their numbers, and what is known of their text and of
/// the calls that were inlined there.
#[must_use]
pub fn source_listing(
    profile: &Profile,
    code: &FunctionCode<'_>,
    names: &DisplayNames,
    sources: &[SourceExcerpt],
) -> String {
    let mut files = BTreeMap::<&str, BTreeMap<u32, LineCost<'_>>>::new();
    for ((path, line), cost) in code.line_costs() {
        files.entry(path).or_default().insert(line, cost);
    }
    let all = profile.total_count();
    let mut out = String::new();
    for (path, costs) in files {
        let path_shown = if path.is_empty() { "[no file]".into() } else { escaped(path) };
        let _ = writeln!(out, "{path_shown}\n{:>7}  {:>7}  {:>6}", "SELF", "TOTAL", "LINE");
        let texts = texts(sources, path);
        let lines: BTreeSet<u32> = texts.keys().chain(costs.keys()).copied().collect();
        let mut last = None;
        for line in lines {
            if last.is_some_and(|last| last > 0 && last + 1 != line) {
                out.push_str("    ...\n");
            }
            last = Some(line);
            let cost = costs.get(&line);
            let (own, total) = cost.map_or((0, 0), |cost| (cost.own, cost.total));
            let number = if line == 0 { "?".to_owned() } else { line.to_string() };
            let text = texts.get(&line).unwrap_or(&"");
            let inlined = cost.map_or_else(String::new, |cost| inlined_calls(cost, all, names));
            let row = format!("{}  {number:>6}  {text}{inlined}", shares(own, total, all));
            let _ = writeln!(out, "{}", row.trim_end());
        }
    }
    out
}

/// The instructions of a function: their self and total shares of all events, with the source line and the way of unwinding where
/// these change.
#[must_use]
pub fn assembly_listing(profile: &Profile, assembly: &FunctionAssembly, sources: &[SourceExcerpt]) -> String {
    let FunctionAssembly { path, build_id, blocks, files, instructions, unwinding, costs, .. } = assembly;
    let mut sums = BTreeMap::<u32, (u64, u64)>::new();
    for ((instruction, own), total) in costs.instruction.iter().zip(&costs.own).zip(&costs.total) {
        let sum = sums.entry(*instruction).or_default();
        *sum = (sum.0.saturating_add(*own), sum.1.saturating_add(*total));
    }
    let mut out = escaped_or_empty(path).into_owned();
    if !build_id.is_empty() {
        let _ = write!(out, ", build ID {}", escaped(build_id));
    }
    out.push('\n');
    let _ = writeln!(out, "{:>7}  {:>7}  {:>12}", "SELF", "TOTAL", "ADDRESS");
    let all = profile.total_count();
    let texts: Vec<_> = files.iter().map(|path| texts(sources, path)).collect();
    let mut blocks = blocks.iter().peekable();
    let mut methods = unwinding.address.iter().zip(&unwinding.method).peekable();
    let mut last_line = (0, 0);
    let places = instructions.line.iter().zip(&instructions.file);
    let listed = instructions.address.iter().zip(&instructions.text).zip(places);
    for (number, ((&address, text), (&line, &file))) in (0..).zip(listed) {
        let mut note = |text: &str| _ = writeln!(out, "{:32}{text}", "");
        while let Some(block) = blocks.next_if(|block| block.start <= address) {
            note(&format!("{}:", block.symbol));
        }
        let mut method = None;
        while let Some((_, next)) = methods.next_if(|(start, _)| **start <= address) {
            method = Some(next);
        }
        if let Some(method) = method {
            note(&format!("unwound by {method}"));
        }
        if line > 0 && (file, line) != last_line {
            last_line = (file, line);
            let known = (file as usize).checked_sub(1).and_then(|file| files.get(file).zip(texts.get(file)));
            let (path, text) = known.map_or(("?", None), |(path, texts)| (path.as_str(), texts.get(&line)));
            let text = text.map_or("", |text| text.trim());
            note(format!("{path}:{line}  {text}").trim_end());
        }
        let (own, total) = sums.get(&number).copied().unwrap_or_default();
        let _ = writeln!(out, "{}  {address:>12x}  {text}", shares(own, total, all));
    }
    out
}

/// The known lines of a file.
fn texts<'a>(sources: &'a [SourceExcerpt], path: &str) -> BTreeMap<u32, &'a str> {
    let parts = sources.iter().filter(|source| source.path == path).flat_map(|source| &source.parts);
    parts.flat_map(|part| (part.line..).zip(part.text.iter().map(String::as_str))).collect()
}

/// Two shares of all events; blanks where there are none.
fn shares(own: u64, total: u64, all: u64) -> String {
    let [own, total] = [own, total].map(|events| match events {
        0 => String::new(),
        events => format!("{:.2}%", percent(events, all)),
    });
    format!("{own:>7}  {total:>7}")
}

fn inlined_calls(cost: &LineCost<'_>, all: u64, names: &DisplayNames) -> String {
    let mut calls: Vec<_> = cost.inlined.iter().collect();
    calls.sort_by_key(|(name, events)| (std::cmp::Reverse(**events), *name));
    let calls = calls.into_iter().take(3);
    calls.map(|(name, events)| format!("  <- {} {:.2}%", names.shown(name), percent(*events, all))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{CodeBlock, Instructions, PageFunction, SourcePart, UnwindingRanges};
    use crate::names::NameStyle;
    use crate::profile::tests::lines;

    fn id() -> PageFunction {
        PageFunction { name: "hot".to_owned(), binary: "app".to_owned() }
    }

    #[test]
    fn lines_have_their_shares_before_them_and_inlined_calls_behind_them() {
        let profile = lines();
        let code = FunctionCode::new(&profile, &id()).unwrap();
        let names = DisplayNames::new([&profile], NameStyle::Short);
        let source =
            SourceExcerpt { path: "src/hot.c".to_owned(), parts: vec![SourcePart::new(19, ["a", "b", "c"])] };
        let expected = "\
src/hot.c
   SELF    TOTAL    LINE
                      19  a
 30.00%   30.00%      20  b
          60.00%      21  c  <- hash 60.00%
    ...
          20.00%      25
src/table.inc
   SELF    TOTAL    LINE
 10.00%   10.00%      30
";
        assert_eq!(source_listing(&profile, &code, &names, &[source]), expected);
    }

    #[test]
    fn instructions_say_where_a_line_and_a_way_of_unwinding_begin() {
        let profile = lines();
        let code = FunctionCode::new(&profile, &id()).unwrap();
        let (binary, _) = code.addresses().unwrap();
        let assembly = FunctionAssembly {
            function: id(),
            path: "/usr/bin/app".to_owned(),
            build_id: "0123abcd".to_owned(),
            blocks: vec![CodeBlock { symbol: "hot".to_owned(), start: 0x2000, end: 0x2030 }],
            files: vec!["src/hot.c".to_owned()],
            instructions: Instructions {
                address: vec![0x2000, 0x2010, 0x2020],
                text: ["nop", "dec", "call"].map(str::to_owned).to_vec(),
                line: vec![20, 21, 21],
                file: vec![1, 1, 1],
            },
            unwinding: UnwindingRanges { address: vec![0x1ff0], method: vec!["table".to_owned()] },
            costs: code.costs(binary, |address| u32::try_from(address.checked_sub(0x2000)? / 16).ok()),
        };
        let source =
            SourceExcerpt { path: "src/hot.c".to_owned(), parts: vec![SourcePart::new(21, ["  a();"])] };
        let expected = "\
/usr/bin/app, build ID 0123abcd
   SELF    TOTAL       ADDRESS
                                hot:
                                unwound by table
                                src/hot.c:20
 30.00%   30.00%          2000  nop
                                src/hot.c:21  a();
 60.00%   60.00%          2010  dec
          20.00%          2020  call
";
        assert_eq!(assembly_listing(&profile, &assembly, &[source]), expected);
    }
}
