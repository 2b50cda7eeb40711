//! Short forms of names that real programs have: `names/corpus.tsv` has the category of each name, the name, and its short form.

use sidewinder_render::{
    DisplayNames, FrameCategory, FrameIndex, NameStyle, Profile, ProfileFrame, SampleType,
};

const CORPUS: &str = include_str!("names/corpus.tsv");

fn frame(name: &str, kind: FrameCategory) -> ProfileFrame {
    ProfileFrame {
        name: name.into(),
        is_named: true,
        system_name: "".into(),
        binary: None,
        kind,
        address: 0,
        path: "".into(),
        line: 0,
        is_guessed: false,
        is_marker: false,
    }
}

fn rows() -> Vec<(FrameCategory, &'static str, &'static str)> {
    let lines = CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let columns = <[&str; 3]>::try_from(line.split('\t').collect::<Vec<_>>());
            let [kind, name, short] = columns.expect("three columns");
            let kind = FrameCategory::ALL.into_iter().find(|one| one.label() == kind).expect(line);
            (kind, name, short)
        })
        .collect()
}

/// A profile without stacks.
fn profile() -> Profile {
    Profile::new(String::new(), SampleType::of_values(String::from("samples"), String::from("count"), None))
}

/// In a profile of its own, each name has its shortest form.
#[test]
fn real_names_are_short() {
    let mut wrong = Vec::new();
    for (kind, name, short) in rows() {
        let mut profile = profile();
        profile.frames.push(frame(name, kind));
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
    profile.frames.extend(rows().into_iter().map(|(kind, name, _)| frame(name, kind)));
    let names = DisplayNames::new([&profile], NameStyle::Short);
    let mut shown: Vec<_> = profile.frames.iter().map(|frame| names.shown(&frame.name)).collect();
    let (count, letters) = (shown.len(), shown.iter().map(|name| name.chars().count()).sum::<usize>());
    shown.sort();
    shown.dedup();
    assert_eq!(shown.len(), count);
    let full: usize = profile.frames.iter().map(|frame| frame.name.chars().count()).sum();
    assert!(letters * 2 < full, "{letters} characters of {full}");
}
