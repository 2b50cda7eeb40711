//! A flame graph as an SVG image, drawn by inferno.

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Options, TextTruncateDirection};

use crate::category::FrameCategory;
use crate::escape::escaped;
use crate::folded;
use crate::names::DisplayNames;
use crate::palette::{NEUTRAL, Rgb, function_colour};
use crate::profile::Profile;

/// Draws the stacks. There must be at least one event.
pub(crate) fn write(profile: &Profile, names: &DisplayNames, out: &mut impl Write) -> io::Result<()> {
    let mut palette = PaletteMap::default();
    let mut paint = |name: &str, [r, g, b]: Rgb| palette.insert(name, Color { r, g, b });
    for thread in &profile.threads {
        paint(&folded::escape_process(&thread.process), NEUTRAL);
        if profile.is_per_thread {
            paint(&folded::thread_name(thread), NEUTRAL);
        }
    }
    paint("", NEUTRAL);
    for (_, frame) in profile.stacked_frames() {
        let colour = function_colour(FrameCategory::of(&frame), &frame.name());
        paint(&folded::frame_name(&frame, names), colour);
    }
    let mut options = Options::default();
    options.title = escaped(&profile.title).into_owned();
    options.palette_map = Some(&mut palette);
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 0xfb, g: 0xfa, b: 0xf8 }));
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.deterministic = true;
    if profile.measure.is_duration() {
        (options.count_name, options.factor) = ("ms".to_owned(), 1e-6);
    } else if profile.measure.rate_hz() == 0 {
        let measure = &profile.measure;
        let counted = measure.shown_unit().unwrap_or_else(|| sidewinder_kind::display_of(measure.name()));
        options.count_name = escaped(counted).into_owned();
    }
    let lines: Vec<_> = folded::lines(profile, names).collect();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};
    use proptest::prelude::*;

    fn svg(profile: &Profile) -> String {
        let mut out = Vec::new();
        write(profile, &DisplayNames::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_function_has_its_width_and_its_kinds_colour() {
        let svg = svg(&sample());
        assert!(svg.contains("work (7 samples, 50.00%)"));
        let [r, g, b] = function_colour(FrameCategory::Kernel, "vfs_write");
        assert!(svg.contains(&format!("rgb({r},{g},{b})")));
    }

    proptest! {
        #[test]
        fn no_name_opens_an_element(name in "[<>&'\"a-z/ !\\-\\[\\]\u{1b}]{0,40}") {
            let harmless = svg(&one_stack(&["name"])).matches('<').count();
            prop_assert_eq!(svg(&one_stack(&[&format!("{name}<script>")])).matches('<').count(), harmless);
        }
    }
}
