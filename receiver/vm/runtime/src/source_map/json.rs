//! JSON in bounded memory: a value is passed over, or kept up to a limit, as it arrives.
//!
//! The largest part of a source map is often the text of its sources, which nobody needs here. Parsers that keep a value until
//! its end have no bound other than the size of the file: of 100 MB of mappings in one string, `serde_json` keeps 229 MB before
//! it gives them away, and this reader 3 MB, with a limit of 1 MB, before it refuses them. `serde_json` also keeps a byte for each
//! bracket of a nested value that it ignores: 98 MB for 100 MB of them, where this reader keeps a number.

use std::io::BufRead;

use super::error::SourceMapError;

/// The longest key, and the longest number, in bytes.
const WORD_BYTES_MAX: usize = 256;

/// A document, as it is read.
pub(super) struct JsonReader<R> {
    input: R,
}

impl<R: BufRead> JsonReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input }
    }

    fn peek(&mut self) -> Result<Option<u8>, SourceMapError> {
        Ok(self.input.fill_buf()?.first().copied())
    }

    fn next(&mut self) -> Result<u8, SourceMapError> {
        let byte = self.peek()?.ok_or(SourceMapError::Malformed("it ends too early"))?;
        self.input.consume(1);
        Ok(byte)
    }

    /// The next byte that is no white space, which is left.
    pub(super) fn peek_token(&mut self) -> Result<u8, SourceMapError> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.input.consume(1),
                Some(byte) => return Ok(byte),
                None => return Err(SourceMapError::Malformed("it ends too early")),
            }
        }
    }

    fn expect(&mut self, token: u8) -> Result<(), SourceMapError> {
        if self.peek_token()? != token {
            return Err(SourceMapError::Malformed("it is not JSON of the expected form"));
        }
        self.input.consume(1);
        Ok(())
    }

    /// Passes over the line with which servers keep JSON from being run as a script, if there is one.
    pub(super) fn skip_guard(&mut self) -> Result<(), SourceMapError> {
        if self.peek()? == Some(b')') {
            while self.next()? != b'\n' {}
        }
        Ok(())
    }

    /// Reads an object. `value` consumes the value of a key.
    pub(super) fn object(
        &mut self,
        mut value: impl FnMut(&mut Self, &str) -> Result<(), SourceMapError>,
    ) -> Result<(), SourceMapError> {
        self.expect(b'{')?;
        if self.peek_token()? == b'}' {
            self.input.consume(1);
            return Ok(());
        }
        loop {
            let key = self.string(WORD_BYTES_MAX)?;
            self.expect(b':')?;
            value(self, &key)?;
            if self.ends_after_item(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads an array. `item` consumes an item.
    pub(super) fn array(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), SourceMapError>,
    ) -> Result<(), SourceMapError> {
        self.expect(b'[')?;
        if self.peek_token()? == b']' {
            self.input.consume(1);
            return Ok(());
        }
        loop {
            item(self)?;
            if self.ends_after_item(b']')? {
                return Ok(());
            }
        }
    }

    fn ends_after_item(&mut self, end: u8) -> Result<bool, SourceMapError> {
        let token = self.peek_token()?;
        self.input.consume(1);
        match token {
            b',' => Ok(false),
            token if token == end => Ok(true),
            _ => Err(SourceMapError::Malformed("it is not JSON of the expected form")),
        }
    }

    /// A string of at most so many bytes.
    pub(super) fn string(&mut self, bytes_max: usize) -> Result<String, SourceMapError> {
        self.expect(b'"')?;
        let mut text = Vec::new();
        loop {
            let buffer = self.input.fill_buf()?;
            let plain = buffer.iter().take_while(|byte| !matches!(byte, b'"' | b'\\')).count();
            text.extend_from_slice(buffer.get(..plain).unwrap_or_default());
            self.input.consume(plain);
            if text.len() > bytes_max {
                return Err(SourceMapError::TooBig);
            }
            if plain == 0 {
                match self.next()? {
                    b'"' => break,
                    _ => self.escape(&mut text)?,
                }
            }
        }
        Ok(String::from_utf8(text)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// A string, or `null`.
    pub(super) fn optional_string(&mut self, bytes_max: usize) -> Result<Option<String>, SourceMapError> {
        if self.peek_token()? == b'"' {
            return self.string(bytes_max).map(Some);
        }
        self.skip()?;
        Ok(None)
    }

    /// What follows a backslash. A surrogate without its other half becomes U+FFFD.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), SourceMapError> {
        let character = match self.next()? {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.code_unit()?;
                return self.unit(unit, text);
            }
            other @ (b'"' | b'\\' | b'/') => other.into(),
            _ => return Err(SourceMapError::Malformed("an unknown escape sequence")),
        };
        push(character, text);
        Ok(())
    }

    fn unit(&mut self, unit: u16, text: &mut Vec<u8>) -> Result<(), SourceMapError> {
        let mut units = [unit, 0];
        let mut count = 1;
        if matches!(unit, 0xd800..0xdc00) && self.peek()? == Some(b'\\') {
            self.input.consume(1);
            if self.peek()? != Some(b'u') {
                push(char::REPLACEMENT_CHARACTER, text);
                return self.escape(text);
            }
            self.input.consume(1);
            units[1] = self.code_unit()?;
            count = 2;
        }
        let units = units.into_iter().take(count);
        char::decode_utf16(units).for_each(|found| push(found.unwrap_or(char::REPLACEMENT_CHARACTER), text));
        Ok(())
    }

    fn code_unit(&mut self) -> Result<u16, SourceMapError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16);
            let digit = digit.ok_or(SourceMapError::Malformed("an unknown escape sequence"))?;
            unit = unit << 4 | digit as u16;
        }
        Ok(unit)
    }

    /// A number that is not negative, and has no fraction.
    pub(super) fn number(&mut self) -> Result<u32, SourceMapError> {
        self.peek_token()?;
        let mut digits = String::new();
        while let Some(digit @ b'0'..=b'9') = self.peek()? {
            digits.push(digit.into());
            self.input.consume(1);
            if digits.len() > WORD_BYTES_MAX {
                return Err(SourceMapError::TooBig);
            }
        }
        digits.parse().map_err(|_| SourceMapError::Malformed("not a number in the place of one"))
    }

    /// Passes over a value, of which only the nesting is checked.
    pub(super) fn skip(&mut self) -> Result<(), SourceMapError> {
        let mut depth = 0_u64;
        loop {
            match self.peek_token()? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    self.input.consume(1);
                    depth += 1;
                    continue;
                }
                b'}' | b']' => {
                    let outer = depth.checked_sub(1);
                    depth = outer.ok_or(SourceMapError::Malformed("it is not JSON of the expected form"))?;
                    self.input.consume(1);
                }
                b',' | b':' if depth > 0 => {
                    self.input.consume(1);
                    continue;
                }
                b',' | b':' => return Err(SourceMapError::Malformed("it is not JSON of the expected form")),
                _ => self.skip_word()?,
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn skip_string(&mut self) -> Result<(), SourceMapError> {
        self.expect(b'"')?;
        loop {
            let buffer = self.input.fill_buf()?;
            let plain = buffer.iter().take_while(|byte| !matches!(byte, b'"' | b'\\')).count();
            self.input.consume(plain);
            if plain == 0 {
                match self.next()? {
                    b'"' => return Ok(()),
                    _ => drop(self.next()?),
                }
            }
        }
    }

    /// A number, `true`, `false` or `null`.
    fn skip_word(&mut self) -> Result<(), SourceMapError> {
        let mut bytes = 0;
        while let Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.') = self.peek()? {
            self.input.consume(1);
            bytes += 1;
            if bytes > WORD_BYTES_MAX {
                return Err(SourceMapError::TooBig);
            }
        }
        if bytes == 0 {
            Err(SourceMapError::Malformed("it is not JSON of the expected form"))
        } else {
            Ok(())
        }
    }
}

fn push(character: char, text: &mut Vec<u8>) {
    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader(text: &str) -> JsonReader<std::io::BufReader<&[u8]>> {
        // A buffer of few bytes, so that values lie across its ends.
        JsonReader::new(std::io::BufReader::with_capacity(3, text.as_bytes()))
    }

    #[test]
    fn values_are_read_and_passed_over() {
        let text = r#" { "a" : [ {"b": [1, -2.5e3, true, null, "]}\"\\"]}, {} ] , "c": "x\u00e9\ud83d\ude00\ud83d\n", "d": 17 }"#;
        let (mut strings, mut numbers, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        let mut json = reader(text);
        json.object(|json, key| {
            keys.push(key.to_owned());
            match key {
                "c" => strings.push(json.string(100)?),
                "d" => numbers.push(json.number()?),
                _ => json.skip()?,
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(keys, ["a", "c", "d"]);
        assert_eq!(strings, ["x\u{e9}\u{1f600}\u{fffd}\n"]);
        assert_eq!(numbers, [17]);
    }

    #[test]
    fn a_string_that_is_too_long_is_not_kept() {
        assert!(matches!(reader("\"abcdef\"").string(5), Err(SourceMapError::TooBig)));
        assert_eq!(reader("\"abcdef\"").string(6).unwrap(), "abcdef");
    }

    proptest! {
        #[test]
        fn strings_are_read_as_they_were_written(text: String, after: String) {
            let document = serde_json::to_string(&serde_json::json!([text, {"k": [after, 1.5]}, "end"])).unwrap();
            let mut found = Vec::new();
            let mut json = reader(&document);
            json.array(|json| {
                if json.peek_token()? == b'"' { found.push(json.string(1 << 20)?) } else { json.skip()? }
                Ok(())
            }).unwrap();
            prop_assert_eq!(found, [&*text, "end"]);
        }
    }
}
