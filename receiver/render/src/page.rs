//! The interactive page of a profile, in one file that needs no network.
//!
//! The page is built from `receiver/page`. Its data is the [document](crate::document), compressed and encoded in base64, so
//! that no name can close its element. Of several profiles the documents follow each other, separated by commas.

use std::io::{self, Write};

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::document::{self, PageViews};
use crate::escape::escaped;
use crate::names::NameStyle;
use crate::profile::Profile;

/// The built page, with a placeholder for the document.
const PAGE: &str = include_str!("../../page/page.html");
const PLACEHOLDER: &str = "{{document}}";

/// Columns are small already: better compression saves a tenth, and takes several times as long.
const COMPRESSION: Compression = Compression::new(3);

/// The page without a profile, which fetches [parts](crate::DocumentBuilder) of one from `data/` beside its own address.
#[must_use]
pub fn live_page() -> String {
    PAGE.replacen(PLACEHOLDER, "", 1)
}

/// Writes the page of profiles, which names functions like this at first. It shows the first of them, and any other one if asked to.
///
/// # Errors
///
/// Any I/O error of `out`.
pub fn write_page(profiles: &[Profile], names: NameStyle, out: &mut impl Write) -> io::Result<()> {
    let (before, after) = PAGE.split_once(PLACEHOLDER).unwrap_or((PAGE, ""));
    out.write_all(before.as_bytes())?;
    let all = if profiles.len() > 1 { profiles } else { &[] };
    let all: Vec<_> = all.iter().map(|profile| escaped(&profile.measure.subject()).into_owned()).collect();
    for (shown, profile) in profiles.iter().enumerate() {
        if shown > 0 {
            out.write_all(b",")?;
        }
        let mut base64 = EncoderWriter::new(&mut *out, &STANDARD);
        let mut gzip = GzEncoder::new(&mut base64, COMPRESSION);
        document::write(profile, names, PageViews { names: all.clone(), shown }, &mut gzip)?;
        gzip.finish()?;
        base64.finish()?;
    }
    out.write_all(after.as_bytes())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::document::decode_document;
    use crate::label::escape_name;
    use crate::profile::tests::{one_stack, sample};
    use base64::Engine as _;
    use flate2::read::GzDecoder;
    use proptest::prelude::*;
    use sidewinder_kind::Kind;
    use sidewinder_profile::SampleType;

    fn page(profile: &Profile) -> String {
        let mut out = Vec::new();
        write_page(std::slice::from_ref(profile), NameStyle::Short, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    pub(crate) fn document_of(page: &str) -> serde_json::Value {
        let [document] = <[_; 1]>::try_from(documents_of(page)).unwrap();
        document
    }

    fn documents_of(page: &str) -> Vec<serde_json::Value> {
        let (before, after) = PAGE.split_once(PLACEHOLDER).unwrap();
        let documents = page.strip_prefix(before).unwrap().strip_suffix(after).unwrap();
        let read = |base64| {
            let mut document = Vec::new();
            GzDecoder::new(&*STANDARD.decode(base64).unwrap()).read_to_end(&mut document).unwrap();
            decode_document(&document).unwrap()
        };
        documents.split(',').map(read).collect()
    }

    #[test]
    fn a_page_holds_every_profile_and_says_which_there_are() {
        let waits = Profile { measure: SampleType::from_kind(Kind::OffCpu), ..sample() };
        let mut out = Vec::new();
        write_page(&[sample(), waits], NameStyle::Short, &mut out).unwrap();
        let documents = documents_of(&String::from_utf8(out).unwrap());
        let views = |shown| serde_json::json!({ "names": ["CPU time", "off-CPU time"], "shown": shown });
        assert_eq!(
            documents.iter().map(|document| &document["views"]).collect::<Vec<_>>(),
            [&views(0), &views(1)]
        );
        assert_eq!((&documents[0]["measure"], &documents[1]["measure"]), (&"CPU".into(), &"off-CPU".into()));
        assert_eq!(
            document_of(&page(&sample()))["views"]["names"],
            serde_json::json!([]),
            "nothing to choose"
        );
    }

    #[test]
    fn a_document_says_which_functions_are_of_standard_libraries() {
        let document = document_of(&page(&one_stack(&["core::ptr::write", "work", "std::rt::lang_start"])));
        assert_eq!(document["functions"]["standard"], serde_json::json!([0, 2]));
    }

    #[test]
    fn the_page_is_small_and_makes_no_requests() {
        let page = page(&sample());
        assert!(page.len() < 300_000, "{} bytes", page.len());
        assert!(page.contains("default-src 'none'"));
        for reference in [" src=", "@import", "url(", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn the_document_holds_every_event_and_every_outcome() {
        let document = document_of(&page(&sample()));
        let sum = |column: &serde_json::Value| -> u64 {
            column.as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
        };
        assert_eq!(sum(&document["samples"]["count"]), 14);
        assert_eq!(document["measure"], "CPU", "as it is displayed");
        assert_eq!(document["outcomes"].as_array().unwrap().len(), 4);
        assert_eq!(document["nodes"]["parent_before"], serde_json::json!([0, 1, 1, 3, 1]));
    }

    proptest! {
        #[test]
        fn no_name_leaves_the_document(name in "(</script|<!--|]]>|&lt;|\\{\\{document\\}\\}|.){1,20}") {
            let document = document_of(&page(&one_stack(&[&name])));
            let number = document["functions"]["name"][0].as_u64().unwrap() as usize;
            let label = escape_name(&name);
            prop_assert_eq!(&document["strings"][number], &*escaped(&label));
        }
    }
}
