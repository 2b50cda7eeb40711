//! Fields of objects that were read.

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use super::layout::BLOB_BYTES_MAX;

/// The largest part of an object that is read, in bytes.
const OBJECT_BYTES_MAX: u16 = BLOB_BYTES_MAX + u8::MAX as u16;

pub(super) fn read_object(
    memory: &impl ForeignMemory,
    at: Avma,
    bytes: u16,
) -> Result<Vec<u8>, FunctionError> {
    let mut object = vec![0; bytes.min(OBJECT_BYTES_MAX).into()];
    memory.read_exact(at, &mut object)?;
    Ok(object)
}

pub(super) fn field<const BYTES: usize>(object: &[u8], at: u16) -> Result<[u8; BYTES], FunctionError> {
    let found = object.get(usize::from(at)..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or(FunctionError::Malformed("a field behind its object"))
}

pub(super) fn u16_field(object: &[u8], at: u16) -> Result<u16, FunctionError> {
    field(object, at).map(u16::from_le_bytes)
}

pub(super) fn u32_field(object: &[u8], at: u16) -> Result<u32, FunctionError> {
    field(object, at).map(u32::from_le_bytes)
}

pub(super) fn pointer(object: &[u8], at: u16) -> Result<Avma, FunctionError> {
    field(object, at).map(|word| Avma(u64::from_le_bytes(word)))
}
