//! What the file of a script says: which text it is, and where its source map is.

use std::io::{self, Read};

use super::url::{Reference, folder_of};
use crate::cookie::hash;
use crate::line_ends::{LineEnds, LineScanner};

/// What precedes the URL of the map in the last comment of a script; the second form is the former one.
const COMMENTS: [&[u8]; 2] = [b"//# sourceMappingURL=", b"//@ sourceMappingURL="];
const COMMENT_BYTES: usize = COMMENTS[0].len();
/// Before the data of a map that is in the URL itself.
const DATA: &[u8] = b"data:";
const BASE64: &[u8] = b";base64,";
/// The longest start of a URL that is looked at: one that refers to a file, or what precedes the data in one that has them.
const URL_BYTES_MAX: usize = 4 << 10;
/// Bytes of a file that are read at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Which text a script is, so that one that was changed on disk after it was loaded is told apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScriptContent {
    /// In units of UTF-16.
    characters: u32,
    /// A hash of where its lines end.
    line_ends: u32,
}

impl ScriptContent {
    /// `None` if the ends of its lines aren't all known.
    pub fn new(characters: u32, ends: &LineEnds) -> Option<Self> {
        // V8 counts the end of a source as that of a line, even where nothing terminates it.
        let ends = ends.all()?.iter().take_while(|end| **end < characters);
        Some(Self { characters, line_ends: hash(ends.map(|end| u64::from(*end))) })
    }
}

/// Where the map of a script is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapLocation {
    /// In a file with this path.
    File(String),
    /// In the script, in Base64.
    Inline {
        /// Where the data begin in its file.
        offset: u64,
        /// Their length.
        bytes: u64,
    },
    /// At a URL that is not followed, or in a form that is not read.
    Unsupported,
}

/// What the file of a script says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptFile {
    /// `None`: it is no UTF-8, or has more lines than are counted.
    pub content: Option<ScriptContent>,
    /// `None`: it names no map.
    pub map: Option<MapLocation>,
}

impl ScriptFile {
    /// Reads the file at a path, of which at most so many bytes are read.
    ///
    /// # Errors
    /// Any of the file; [`io::ErrorKind::FileTooLarge`] if it is longer.
    pub fn read(mut file: impl Read, path: &str, bytes_max: u64) -> io::Result<Self> {
        let (mut text, mut comments) = (TextScanner::default(), CommentScanner::default());
        let (mut buffer, mut total) = (vec![0; CHUNK_BYTES], 0_u64);
        loop {
            let count = match file.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let chunk = buffer.get(..count).unwrap_or_default();
            if chunk.is_empty() {
                break;
            }
            total += chunk.len() as u64;
            if total > bytes_max {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            text.add(chunk);
            comments.add(chunk);
        }
        let comment = comments.finish();
        Ok(Self { content: text.finish(), map: comment.map(|comment| comment.location(path)) })
    }
}

/// Finds the ends of lines in UTF-8.
#[derive(Default)]
struct TextScanner {
    lines: LineScanner,
    /// The start of a character whose end has not arrived.
    partial: Vec<u8>,
    is_behind_start: bool,
    is_invalid: bool,
}

impl TextScanner {
    fn add(&mut self, chunk: &[u8]) {
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(chunk);
        let valid = match std::str::from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            Err(error) => {
                self.is_invalid |= error.error_len().is_some();
                error.valid_up_to()
            }
        };
        let (text, partial) = bytes.split_at(valid);
        let mut text = std::str::from_utf8(text).unwrap_or_default();
        if !self.is_behind_start && !text.is_empty() {
            // Runtimes leave a byte order mark out.
            text = text.strip_prefix('\u{feff}').unwrap_or(text);
            self.is_behind_start = true;
        }
        for unit in text.encode_utf16() {
            self.lines.character(unit);
        }
        if !self.is_invalid {
            self.partial = partial.to_vec();
        }
    }

    fn finish(self) -> Option<ScriptContent> {
        if self.is_invalid || !self.partial.is_empty() {
            return None;
        }
        let characters = self.lines.characters();
        ScriptContent::new(characters, &self.lines.finish(true))
    }
}

/// The last comment that names a map.
struct MapComment {
    /// The start of the URL.
    url: Vec<u8>,
    offset: u64,
    bytes: u64,
}

/// Finds the last comment that names a map, behind which there are only comments (ECMA-426, "Extraction"): such a text may also
/// be in a string of the script.
#[derive(Default)]
struct CommentScanner {
    /// The end of the chunk before, which may have the start of a comment.
    carried: Vec<u8>,
    /// Bytes before `carried`.
    offset: u64,
    comment: Option<MapComment>,
    state: CommentState,
}

/// Where the scanner is, relative to the last comment that it found.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum CommentState {
    /// No comment has been found, or it doesn't count any more.
    #[default]
    None,
    /// In its URL.
    Url,
    /// Behind its URL, in its line: only spaces may follow.
    End,
    /// In white space at the start of a line behind it.
    LineStart,
    /// Behind a slash at the start of a line behind it.
    Slash,
    /// In another comment behind it.
    OtherComment,
}

impl CommentScanner {
    fn add(&mut self, chunk: &[u8]) {
        let mut bytes = std::mem::take(&mut self.carried);
        bytes.extend_from_slice(chunk);
        // The last bytes may be the start of a comment, unless nothing follows.
        let scanned = self.scan(&bytes, bytes.len().saturating_sub(COMMENT_BYTES - 1));
        self.carried = bytes.split_off(scanned);
        self.offset += scanned as u64;
    }

    /// Looks at so many of the first bytes, and at more of them where they belong together. Returns how many it has looked at.
    fn scan(&mut self, bytes: &[u8], count: usize) -> usize {
        let mut at = 0;
        while at < count {
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.first() == Some(&b'/') && COMMENTS.iter().any(|comment| rest.starts_with(comment)) {
                let offset = self.offset + (at + COMMENT_BYTES) as u64;
                self.comment = Some(MapComment { url: Vec::new(), offset, bytes: 0 });
                self.state = CommentState::Url;
                at += COMMENT_BYTES;
                continue;
            }
            if self.state == CommentState::None {
                // Most bytes of a script.
                at += 1 + rest.iter().skip(1).take_while(|byte| **byte != b'/').count();
                continue;
            }
            if let Some(byte) = rest.first() {
                self.state = self.state_after(*byte);
            }
            at += 1;
        }
        at.min(bytes.len())
    }

    fn state_after(&mut self, byte: u8) -> CommentState {
        match (self.state, byte) {
            (
                CommentState::Url | CommentState::End | CommentState::LineStart | CommentState::OtherComment,
                b'\n' | b'\r',
            ) => CommentState::LineStart,
            (CommentState::Url, b' ' | b'\t') => CommentState::End,
            (CommentState::Url, b'"' | b'\'' | b'`') => CommentState::None,
            (CommentState::Url, byte) => {
                if let Some(comment) = &mut self.comment {
                    comment.bytes += 1;
                    if comment.url.len() < URL_BYTES_MAX {
                        comment.url.push(byte);
                    }
                }
                CommentState::Url
            }
            (state @ (CommentState::End | CommentState::LineStart), b' ' | b'\t') => state,
            (CommentState::LineStart, b'/') => CommentState::Slash,
            (CommentState::Slash, b'/') => CommentState::OtherComment,
            (CommentState::OtherComment, _) => CommentState::OtherComment,
            _ => CommentState::None,
        }
    }

    fn finish(mut self) -> Option<MapComment> {
        let rest = std::mem::take(&mut self.carried);
        self.scan(&rest, rest.len());
        self.comment.filter(|comment| self.state != CommentState::None && !comment.url.is_empty())
    }
}

impl MapComment {
    fn location(&self, script: &str) -> MapLocation {
        if self.url.starts_with(DATA) {
            let header = self.url.windows(BASE64.len()).position(|window| window == BASE64);
            return match header.map(|header| (header + BASE64.len()) as u64) {
                Some(header) => {
                    MapLocation::Inline { offset: self.offset + header, bytes: self.bytes - header }
                }
                None => MapLocation::Unsupported,
            };
        }
        let url = std::str::from_utf8(&self.url).ok().filter(|url| url.len() as u64 == self.bytes);
        match url.map(|url| Reference::resolve(url, folder_of(script))) {
            Some(Reference::File(path)) => MapLocation::File(path),
            _ => MapLocation::Unsupported,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file that is read a few bytes at a time.
    struct Slowly<'bytes>(&'bytes [u8], usize);

    impl Read for Slowly<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1).min(to.len());
            let (now, rest) = self.0.split_at(count);
            to[..count].copy_from_slice(now);
            self.0 = rest;
            Ok(count)
        }
    }

    fn map_of(text: &str) -> Option<MapLocation> {
        let read = |step| ScriptFile::read(Slowly(text.as_bytes(), step), "/app/out/x.js", 1 << 20).unwrap();
        let at_once = read(usize::MAX);
        assert!([1, 7, 20, 21].iter().all(|step| read(*step) == at_once), "{text}");
        at_once.map
    }

    #[test]
    fn the_last_comment_names_the_map() {
        let file = |path: &str| Some(MapLocation::File(path.to_owned()));
        assert_eq!(map_of("f();\n//# sourceMappingURL=x.js.map"), file("/app/out/x.js.map"));
        assert_eq!(map_of("f();//# sourceMappingURL=../maps/x.map\r\n \n"), file("/app/maps/x.map"));
        assert_eq!(map_of("//@ sourceMappingURL=/m/a%20b.map\n// end\n//\n"), file("/m/a b.map"));
        assert_eq!(map_of("//# sourceMappingURL=a.map\n//# sourceMappingURL=b.map"), file("/app/out/b.map"));
        assert_eq!(map_of("//# sourceMappingURL=https://host/x.map\n"), Some(MapLocation::Unsupported));
        assert_eq!(map_of("//# sourceMappingURL=data:application/json,{}"), Some(MapLocation::Unsupported));
        for none in [
            "",
            "f();",
            "//# sourceMappingURL=",
            "//# sourceMappingURL=a.map\nf();",
            "//# sourceMappingURL=a.map f()",
            "let a = \"//# sourceMappingURL=a.map\";",
            "//# sourceMappingURL=a.map\n/* */ f()",
            "# sourceMappingURL=a.map",
        ] {
            assert_eq!(map_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_map_in_the_script_is_found_by_its_offset() {
        let text = "f();\n//# sourceMappingURL=data:application/json;charset=utf-8;base64,eyJ2IjozfQ==\n";
        let start = text.find("eyJ").unwrap() as u64;
        assert_eq!(map_of(text), Some(MapLocation::Inline { offset: start, bytes: 12 }));
    }

    #[test]
    fn a_file_that_is_too_long_is_an_error() {
        let error = ScriptFile::read(&b"12345"[..], "/x.js", 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    fn content_of(text: &str) -> Option<ScriptContent> {
        ScriptFile::read(Slowly(text.as_bytes(), 5), "/x.js", 1 << 20).unwrap().content
    }

    #[test]
    fn another_text_has_another_content() {
        let known = content_of("a\nb\u{e9}\r\nc");
        assert!(known.is_some());
        assert_eq!(content_of("\u{feff}a\nb\u{e9}\r\nc"), known);
        assert_ne!(content_of("a\nb\u{e9}\r\ncc"), known);
        assert_ne!(content_of("ab\n\u{e9}\r\nc"), known);
        // V8's table has the end of the source, too.
        let ends = LineEnds::from_ends([1, 5, 7]);
        assert_eq!(ScriptContent::new(7, &ends), known);
        let invalid = ScriptFile::read(&b"a\xff"[..], "/x.js", 10).unwrap();
        assert_eq!(invalid.content, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_script(
            parts in prop::collection::vec(prop_oneof![
                any::<Vec<u8>>(), Just(b"//# sourceMappingURL=".to_vec()), Just(b"data:;base64,".to_vec()), Just(b"\n".to_vec()),
            ], 0..12),
            step in 1_usize..40,
        ) {
            let bytes = parts.concat();
            let found = ScriptFile::read(Slowly(&bytes, step), "/x.js", 1 << 20).unwrap();
            prop_assert_eq!(&found, &ScriptFile::read(&*bytes, "/x.js", 1 << 20).unwrap());
            if let Some(MapLocation::Inline { offset, bytes: length }) = found.map {
                prop_assert!(offset + length <= bytes.len() as u64);
            }
        }
    }
}
