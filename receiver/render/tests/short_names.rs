//! Short forms of names that real programs have: `names/corpus.tsv` has the category of each name, the name, and its short form.

use sidewinder_kind::Kind;
use sidewinder_profile::{Dictionary, FrameType, Location, LocationIndex, Marker, SourceLine};
use sidewinder_render::{DisplayNames, FrameCategory, NameStyle, Profile, SampleType};

const CORPUS: &str = include_str!("names/corpus.tsv");

/// Adds a location of the category with this label.
fn add_location(dictionary: &mut Dictionary, name: &str, category: &str) -> LocationIndex {
    let lines = [dictionary.add_line(&SourceLine { function: name, ..SourceLine::default() })];
    let code = FrameType::ALL.iter().map(|frame_type| (*frame_type, None));
    let inner = |start| name.strip_prefix(start)?.strip_suffix(']');
    let marker = inner("[lock ").map(|id| Marker::Lock(id.into()));
    let marker = marker.or_else(|| inner("[truncated: ").map(Marker::truncated)).unwrap_or(Marker::Words);
    let mut all = code.chain([(FrameType::Native, Some(&marker))]);
    let found = all.find_map(|(frame_type, marker)| {
        let at =
            dictionary.add_location(&Location { frame_type, marker, lines: &lines, ..Location::default() });
        let frame = dictionary.frames_at(at).next().and_then(|frame| dictionary.frame(frame))?;
        (FrameCategory::of(&frame).label() == category).then_some(at)
    });
    found.expect(category)
}

/// The category, the name and the short form in each row.
fn rows() -> Vec<[&'static str; 3]> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect::<Vec<_>>().try_into().expect("three columns")).collect()
}

/// A profile with one stack of these locations.
fn profile(names: &[[&str; 3]]) -> Profile {
    let mut profile =
        Profile::new(String::new(), SampleType::from_kind(Kind::Aggregated { samples_per_second: 0 }));
    let dictionary = &mut profile.dictionary;
    let stack: Vec<_> =
        names.iter().map(|[category, name, _]| add_location(dictionary, name, category)).collect();
    dictionary.add_stack(&stack);
    profile
}

/// In a profile of its own, each name has its shortest form.
#[test]
fn real_names_are_short() {
    let mut wrong = Vec::new();
    for row in rows() {
        let [_, name, short] = row;
        let shown = DisplayNames::new([&profile(&[row])], NameStyle::Short).shown(name).into_owned();
        if shown != short {
            wrong.push(format!("{name}\n  is shown as  {shown}\n  instead of   {short}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In one profile, no two of them are shown alike.
#[test]
fn real_names_are_told_apart() {
    let rows = rows();
    let names = DisplayNames::new([&profile(&rows)], NameStyle::Short);
    let mut shown: Vec<_> = rows.iter().map(|[_, name, _]| names.shown(name)).collect();
    let (count, letters) = (shown.len(), shown.iter().map(|name| name.chars().count()).sum::<usize>());
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), count);
    let full: usize = rows.iter().map(|[_, name, _]| name.chars().count()).sum();
    assert!(letters * 2 < full, "{letters} characters of {full}");
}
