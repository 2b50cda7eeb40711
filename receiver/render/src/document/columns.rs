//! How a document is encoded: its columns of numbers as LEB128, and everything else as JSON.
//!
//! | Bytes | |
//! |---|---|
//! | 4 | the length of the JSON, as little-endian `u32` |
//! | so many | the JSON; `columns` in it lists the table, the name and the number of values of each column |
//! | the rest | the values of these columns, in this order, as unsigned LEB128 |
//!
//! A profile of 100,000 stacks has millions of numbers: as LEB128 they take a third of the JSON, and a reader makes typed
//! arrays of them without parsing text.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A column of numbers as the JSON lists it.
#[derive(Clone, Copy, Serialize, Deserialize, Debug)]
pub(super) struct ColumnLayout<'a> {
    table: &'a str,
    name: &'a str,
    /// The number of values.
    count: usize,
}

/// Columns of numbers, encoded.
#[derive(Default, Debug)]
pub(super) struct Columns {
    layout: Vec<ColumnLayout<'static>>,
    bytes: Vec<u8>,
}

/// The values of one column, encoded.
#[derive(Default, Debug)]
pub(super) struct ColumnValues {
    count: usize,
    bytes: Vec<u8>,
}

impl ColumnValues {
    pub(super) fn push(&mut self, value: impl Into<u64>) {
        let mut rest = value.into();
        self.count += 1;
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }
}

impl<T: Into<u64>> FromIterator<T> for ColumnValues {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

impl Columns {
    /// Adds the columns of a table.
    pub(super) fn add<const N: usize>(
        &mut self,
        table: &'static str,
        columns: [(&'static str, ColumnValues); N],
    ) {
        for (name, ColumnValues { count, bytes }) in columns {
            self.layout.push(ColumnLayout { table, name, count });
            self.bytes.extend_from_slice(&bytes);
        }
    }

    pub(super) fn layout(&self) -> &[ColumnLayout<'static>] {
        &self.layout
    }

    /// Writes a document: `head`, which contains the [layout](Self::layout), and the columns.
    pub(super) fn write(&self, head: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
        let json = serde_json::to_vec(head)?;
        let length =
            u32::try_from(json.len()).map_err(|_| io::Error::other("the document has 4 GiB of text"))?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&json)?;
        out.write_all(&self.bytes)
    }
}

/// Why bytes are no document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// They end within the JSON or within a column.
    #[error("the document ends too early")]
    Truncated,
    /// The head is not JSON, or does not list its columns.
    #[error("the head of the document is not what it should be")]
    Head(#[from] serde_json::Error),
}

/// Decodes a document, and returns it as JSON with the columns in their tables.
///
/// # Errors
///
/// [`DocumentError`].
pub fn decode_document(bytes: &[u8]) -> Result<Value, DocumentError> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        columns: Vec<ColumnLayout<'a>>,
    }
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(DocumentError::Truncated)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (json, mut rest) = rest.split_at_checked(length).ok_or(DocumentError::Truncated)?;
    let head: Head<'_> = serde_json::from_slice(json)?;
    let mut document: Map<String, Value> = serde_json::from_slice(json)?;
    document.remove("columns");
    for ColumnLayout { table, name, count } in head.columns {
        // Each value takes a byte or more.
        if count > rest.len() {
            return Err(DocumentError::Truncated);
        }
        let values: Option<Vec<Value>> = (0..count).map(|_| take_value(&mut rest).map(Value::from)).collect();
        let table = document.entry(table).or_insert_with(|| Value::Object(Map::new()));
        if let Some(table) = table.as_object_mut() {
            table.insert(name.to_owned(), Value::Array(values.ok_or(DocumentError::Truncated)?));
        }
    }
    Ok(Value::Object(document))
}

/// Takes an unsigned LEB128 off the front. Bits beyond 64 are lost.
fn take_value(bytes: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0_u64, 0_u32);
    loop {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f).checked_shl(shift).unwrap_or(0);
        shift = shift.saturating_add(7);
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[derive(Serialize)]
    struct TestHead<'a> {
        title: &'a str,
        columns: &'a [ColumnLayout<'static>],
    }

    fn written(values: &[u64]) -> Vec<u8> {
        let mut columns = Columns::default();
        let column = || values.iter().copied().collect();
        columns.add("samples", [("count", column()), ("node", column())]);
        let mut out = Vec::new();
        columns.write(&TestHead { title: "ß", columns: columns.layout() }, &mut out).unwrap();
        out
    }

    #[test]
    fn a_document_that_ends_early_is_refused() {
        let whole = written(&[1, 300]);
        for end in 0..whole.len() {
            assert!(decode_document(&whole[..end]).is_err(), "{end} bytes");
        }
        let mut wrong = whole;
        wrong[4] = b'?';
        assert!(matches!(decode_document(&wrong), Err(DocumentError::Head(_))));
    }

    proptest! {
        #[test]
        fn columns_are_read_as_they_are_written(values in prop::collection::vec(any::<u64>(), 0..40)) {
            let values = [&[0, 127, 128, u64::from(u32::MAX), u64::MAX][..], &values].concat();
            let read = decode_document(&written(&values)).unwrap();
            prop_assert_eq!(read, json!({ "title": "ß", "samples": { "count": values, "node": values } }));
        }

        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>) {
            let _ = decode_document(&bytes);
        }
    }
}
