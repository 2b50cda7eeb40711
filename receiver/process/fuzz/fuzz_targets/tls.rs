//! Any bytes as an ELF file that may have a thread-local variable, and any words as the data of a dynamic linker.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_process::tls::{TlsLocation, TlsSymbol, read_constant};

struct Bytes<'bytes>(&'bytes [u8]);

impl ForeignMemory for Bytes<'_> {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(at.0).unwrap_or(usize::MAX);
        let bytes = self.0.get(from..).and_then(|rest| rest.get(..to.len()));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

fuzz_target!(|file: &[u8]| {
    let _ = read_constant(&file, b"custom_labels_abi_version");
    let Ok(Some(symbol)) = TlsSymbol::read(&file, b"otel_thread_ctx_v1") else { return };
    if let Ok(TlsLocation::Dynamic { module, .. }) = symbol.locate(0, &Bytes(file)) {
        assert!(module > 0);
    }
});
