//! Short forms of names that real programs have: `names/corpus.tsv` has the category of each name, the name, and its short form.

use sidewinder_kind::Kind;
use sidewinder_render::{
    DisplayNames, FrameIndex, FrameType, Marker, NameStyle, Profile, ProfileFrame, SampleType,
};

const CORPUS: &str = include_str!("names/corpus.tsv");

/// A frame of the category with this label.
fn frame(name: &str, category: &str) -> ProfileFrame {
    let code = ProfileFrame { name: name.into(), is_named: true, ..ProfileFrame::default() };
    let types =
        FrameType::ALL.iter().map(|frame_type| ProfileFrame { frame_type: *frame_type, ..code.clone() });
    let markers = [Marker::Lock(name.into()), Marker::truncated(name)];
    let markers = markers.map(|marker| ProfileFrame { marker: Some(marker), ..code.clone() });
    types.chain(markers).find(|frame| frame.category().label() == category).expect(category)
}

/// The category, the name and the short form in each row.
fn rows() -> Vec<[&'static str; 3]> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split('\t').collect::<Vec<_>>().try_into().expect("three columns")).collect()
}

/// A profile without stacks.
fn profile() -> Profile {
    Profile::new(String::new(), SampleType::from_kind(Kind::Aggregated { samples_per_second: 0 }))
}

/// In a profile of its own, each name has its shortest form.
#[test]
fn real_names_are_short() {
    let mut wrong = Vec::new();
    for [category, name, short] in rows() {
        let mut profile = profile();
        profile.frames.push(frame(name, category));
        profile.stacks.push(vec![FrameIndex(0)]);
        let shown = DisplayNames::new([&profile], NameStyle::Short).shown(name).into_owned();
        if shown != short {
            wrong.push(format!("{name}\n  is shown as  {shown}\n  instead of   {short}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// In one profile, no two of them are shown alike.
#[test]
fn real_names_are_told_apart() {
    let mut profile = profile();
    profile.frames.extend(rows().into_iter().map(|[category, name, _]| frame(name, category)));
    let names = DisplayNames::new([&profile], NameStyle::Short);
    let mut shown: Vec<_> = profile.frames.iter().map(|frame| names.shown(&frame.name)).collect();
    let (count, letters) = (shown.len(), shown.iter().map(|name| name.chars().count()).sum::<usize>());
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), count);
    let full: usize = profile.frames.iter().map(|frame| frame.name.chars().count()).sum();
    assert!(letters * 2 < full, "{letters} characters of {full}");
}
