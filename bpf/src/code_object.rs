//! Code objects of language runtimes, which the programs copy while a process is young.

use sidewinder_address::Avma;
use zerocopy::FromBytes;

use crate::frame::{VmForm, VmFunction};
use crate::intf::{self, sw_object};
use crate::runtime::WalkedRuntime;

/// A code object of CPython, with the start of each object that it refers to. It is content of an untrusted process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeObject {
    /// The process, in our PID namespace.
    pub pid: u32,
    /// The time of the sample in which it was found (`CLOCK_MONOTONIC`).
    pub time_ns: u64,
    /// Its address.
    pub address: Avma,
    /// As in [`VmFunction::cookie`].
    pub cookie: u32,
    /// Its start, with its count of references; zeros if it could not be read.
    pub head: [u8; intf::SW_CPYTHON_HEAD_BYTES as usize],
    /// The fields from which the cookie is computed, and behind them bytes without meaning.
    pub identity: Box<[u8]>,
    /// Its name, a `str`.
    pub name: Box<[u8]>,
    /// The path of its source, a `str`.
    pub path: Box<[u8]>,
    /// Its table of lines, a `bytes`.
    pub lines: Box<[u8]>,
}

impl CodeObject {
    /// The most bytes that one takes.
    pub const BYTES_MAX: usize = size_of::<Self>()
        + (intf::SW_CPYTHON_IDENTITY_BYTES + 2 * intf::SW_OBJECT_TEXT_BYTES + intf::SW_OBJECT_LINES_BYTES)
            as usize;

    /// The function that it is, as frames refer to it.
    #[must_use]
    pub fn function(&self) -> VmFunction {
        VmFunction {
            runtime: WalkedRuntime::CPython,
            object: self.address,
            cookie: self.cookie,
            place: 0,
            form: VmForm::Interpreted,
        }
    }

    /// Parses a record; `None` if it is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (object, _) = sw_object::read_from_prefix(bytes).ok()?;
        let start = |of: &[u8], bytes: u16| of.get(..usize::from(bytes)).map(Box::from);
        Some(Self {
            pid: object.pid,
            time_ns: object.time_ns,
            address: Avma(object.address),
            cookie: object.cookie,
            head: object.head,
            identity: object.identity.into(),
            name: start(&object.name, object.name_bytes)?,
            path: start(&object.path, object.path_bytes)?,
            lines: start(&object.lines, object.lines_bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn a_code_object_has_as_much_as_was_read() {
        let mut record = sw_object { pid: 7, address: 0x7f00_1234_5678, cookie: 9, ..Default::default() };
        record.name[..4].copy_from_slice(b"name");
        (record.name_bytes, record.lines_bytes) = (4, intf::SW_OBJECT_LINES_BYTES as u16);
        let object = CodeObject::parse(record.as_bytes()).unwrap();
        assert_eq!((object.pid, object.address, object.cookie), (7, Avma(0x7f00_1234_5678), 9));
        assert_eq!((&*object.name, &*object.path, object.lines.len()), (&b"name"[..], &b""[..], 480));
        assert_eq!(CodeObject::parse(&record.as_bytes()[..record.as_bytes().len() - 1]), None);
        record.path_bytes = u16::MAX;
        assert_eq!(CodeObject::parse(record.as_bytes()), None, "more than a record holds");
    }
}
