//! Comparisons of small recordings.

use sidewinder_kind::Kind;

use super::*;
use crate::profile::tests::{profile, sample, sample_frames};
use sidewinder_profile::SampleType;

const OPTIONS: TableOptions = TableOptions { rows: 20, order: None, columns: 76, is_coloured: false };

/// `sample()` with a thousand times as many events, and `main`'s self events in `vfs_write` instead.
fn changed() -> [Profile; 2] {
    let [mut before, mut after] = [sample(), sample()];
    after.samples[4].count += after.samples[0].count;
    after.samples.remove(0);
    for profile in [&mut before, &mut after] {
        profile.samples.iter_mut().for_each(|sample| sample.count *= 1000);
    }
    [before, after]
}

fn shown([before, after]: [&Profile; 2], basis: DifferenceBasis) -> String {
    difference(before, after, &[], &DisplayNames::default(), basis, OPTIONS).unwrap()
}

#[test]
fn the_greatest_change_comes_first_whatever_its_direction() {
    let [before, after] = changed();
    assert_eq!(
        shown([&before, &after], DifferenceBasis::Total),
        concat!(
            "  before: app --fast: 14,000 samples, 140.00 s of CPU time in 5.0 s\n",
            "   after: app --fast: 14,000 samples, 140.00 s of CPU time in 5.0 s\n",
            "\n",
            "                        SELF, %    TOTAL, %\n",
            "   BEFORE     AFTER    CHANGE     CHANGE        P  FUNCTION   BINARY\n",
            "    28.57     50.00    +21.43     +21.43  <0.0001  vfs_write  [kernel]\n",
            "    21.43      0.00    -21.43      +0.00  <0.0001  main       app\n",
            "     0.00      0.00     +0.00     +21.43  <0.0001  write_it   app\n",
            "\n",
            "   BEFORE     AFTER    CHANGE        P  BINARY\n",
            "    28.57     50.00    +21.43  <0.0001  [kernel]\n",
            "    71.43     50.00    -21.43  <0.0001  app\n",
            "\n",
            "P: how likely chance makes such a change of SELF, or of TOTAL where SELF is below 0.5% of all samples (Fisher's exact test).\n",
        )
    );
}

#[test]
fn what_chance_explains_is_called_noise_and_comes_last() {
    let [mut before, mut after] = changed();
    before.samples[4].count = 139;
    after.samples[3].count = 100;
    let text = shown([&before, &after], DifferenceBasis::Total);
    let line = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
    assert!(
        text.contains("~ noise: chance explains it. Of the changes without a mark, about 5% are chance"),
        "{text}"
    );
    assert!(line(" main ") < line("vfs_write"), "{text}");
    assert!(text.lines().nth(line("vfs_write")).unwrap().contains('~'), "{text}");
}

#[test]
fn values_are_of_a_second_or_of_a_request_if_requested() {
    let [before, mut after] = changed();
    // Twice as long, at half the rate: the same CPU time in twice the time.
    after.duration *= 2;
    after.measure.period.as_mut().unwrap().amount *= 2;
    after.samples.iter_mut().for_each(|sample| sample.count /= 2);
    let row = |basis| {
        shown([&before, &after], basis).lines().find(|line| line.contains(" work ")).map(str::to_owned)
    };
    // 7,000 samples of 10 ms in 5 s are 14 s a second.
    assert_eq!(
        row(DifferenceBasis::Duration).unwrap().split_whitespace().collect::<Vec<_>>()[..3],
        ["14000.00", "7000.00", "-7000.00"]
    );
    let requests = row(DifferenceBasis::Requests([1000, 2000])).unwrap();
    assert_eq!(requests.split_whitespace().collect::<Vec<_>>()[..3], ["70.00", "35.00", "-35.00"]);
    assert_eq!(row(DifferenceBasis::Total), None, "its share is the same");
    after.duration = std::time::Duration::ZERO;
    let failed =
        difference(&before, &after, &[], &DisplayNames::default(), DifferenceBasis::Duration, OPTIONS);
    assert_eq!(failed, Err(DifferenceError::NoDuration));
}

#[test]
fn changes_are_ordered_by_the_total_where_that_is_asked_for_or_samples_are_waits() {
    let [mut before, mut after] = changed();
    // The function that calls all others.
    let first = |before: &Profile, after: &Profile, order| {
        let options = TableOptions { order, ..OPTIONS };
        let (names, basis) = (DisplayNames::default(), DifferenceBasis::Requests([2, 1]));
        let text = difference(before, after, &[], &names, basis, options).unwrap();
        let row = text.lines().skip_while(|line| !line.contains("FUNCTION")).nth(1).unwrap().to_owned();
        row.split_whitespace().nth(5).unwrap().to_owned()
    };
    assert_eq!(first(&before, &after, None), "vfs_write");
    assert_eq!(first(&before, &after, Some(FunctionOrder::TotalCount)), "main");
    for profile in [&mut before, &mut after] {
        profile.measure = SampleType::from_kind(Kind::OffCpu);
    }
    assert_eq!(first(&before, &after, None), "main");
    assert_eq!(first(&before, &after, Some(FunctionOrder::SelfCount)), "vfs_write");
}

#[test]
fn times_are_not_tested_for_chance() {
    let [mut before, mut after] = changed();
    for profile in [&mut before, &mut after] {
        profile.measure = SampleType::from_kind(Kind::OffCpu);
    }
    let text = shown([&before, &after], DifferenceBasis::Total);
    assert!(text.contains("No change is tested for chance") && !text.contains('~'), "{text}");
    let failed =
        difference(&before, &sample(), &[], &DisplayNames::default(), DifferenceBasis::Total, OPTIONS);
    assert_eq!(failed, Err(DifferenceError::DifferentTypes("times", "samples of CPU time")));
}

#[test]
fn a_small_function_is_not_tested() {
    let [mut before, mut after] = changed();
    before.samples[4].count = 2;
    after.samples[3].count = 20;
    let text = shown([&before, &after], DifferenceBasis::Total);
    let row = text.lines().find(|line| line.contains("vfs_write")).unwrap();
    assert!(row.contains("+0.26?") && row.contains(" -  vfs_write"), "{text}");
    assert!(text.contains("? not tested: below 0.5% of all samples."), "{text}");
}

/// 140 s are 140 ms for each of 1,000 requests, 5.8 ms for each of 24,000, and 47 ns for each of 3,000 million.
#[test]
fn values_of_many_requests_are_not_rounded_away() {
    let [before, after] = changed();
    for (requests, unit, change) in
        [(1_000, "ms", "+30.00"), (24_000, "us", "+1250.00"), (3_000_000_000, "ns", "+10.00")]
    {
        let text = shown([&before, &after], DifferenceBasis::Requests([requests; 2]));
        let row = text.lines().find(|line| line.contains("vfs_write")).unwrap();
        assert!(text.contains(&format!("SELF, {unit}")) && row.contains(change), "{text}");
    }
    let counts = [before, after].map(|profile| Profile {
        measure: SampleType {
            value_type: sidewinder_profile::ValueType::new("events", "count"),
            period: None,
        },
        ..profile
    });
    let text = shown([&counts[0], &counts[1]], DifferenceBasis::Requests([1_000_000; 2]));
    assert!(text.contains("SELF, in 1,000") && text.contains("+3.00"), "{text}");
    let same = shown([&counts[0], &counts[0]], DifferenceBasis::Requests([1_000_000; 2]));
    assert!(same.contains("no function differs by 0.005 in 1,000\n"), "{same}");
}

#[test]
fn names_are_whole_where_there_is_room() {
    let [before, _] = changed();
    let name = "a_name_that_is_longer_than_a_narrow_terminal_has_room_for";
    let mut frames = sample_frames();
    frames[3].name = name.to_owned();
    let stacks: [(&[usize], u64); 4] =
        [(&[1, 0], 4000), (&[2, 0], 1000), (&[2, 1, 0], 2000), (&[3, 4, 0], 7000)];
    let after = profile(&frames, &stacks);
    let lines = |columns| {
        let options = TableOptions { columns, ..OPTIONS };
        difference(&before, &after, &[], &DisplayNames::default(), DifferenceBasis::Total, options).unwrap()
    };
    assert!(lines(usize::MAX).contains(&format!("  {name}  [kernel]\n")), "{}", lines(usize::MAX));
    let narrow = lines(80);
    assert!(narrow.lines().take(8).all(|line| line.chars().count() <= 80), "{narrow}");
    assert!(narrow.contains("a_name_that_is_long…_room_for\n"), "{narrow}");
}

#[test]
fn renamed_binaries_are_said() {
    let [before, after] = changed();
    let renamed = RenamedBinary { before: "app-1".into(), after: "app".into(), functions: 1_200 };
    let text =
        difference(&before, &after, &[renamed], &DisplayNames::default(), DifferenceBasis::Total, OPTIONS);
    let text = text.unwrap();
    assert!(text.contains("\n renamed: app-1 is compared with app: 1,200 functions are in both\n"), "{text}");
}
