//! Names of kernel functions, which the kernel resolves one at a time.

use std::cell::RefCell;
use std::io;

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::load::Storage;
use crate::opener::Opener;
use crate::skeleton::kernel_names::{KernelNamesSkel, KernelNamesSkelBuilder};

thread_local! {
    /// The program of the opener's thread.
    static PROGRAM: RefCell<KernelNamesProgram> = const { RefCell::new(KernelNamesProgram::Unloaded) };
}

impl Opener {
    /// The kernel's name for one of its addresses: `name+0xOFFSET/0xSIZE`, with ` [module]` for a module's function, or the
    /// address as a number if there is no function. `None` if the kernel can't resolve it: before Linux 5.13, or without the
    /// privileges (`CAP_BPF` and `CAP_PERFMON`).
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn kernel_symbol(&self, address: u64) -> io::Result<Option<String>> {
        self.run(move || PROGRAM.with_borrow_mut(|program| program.symbol(address)))
    }
}

/// The program that resolves names, loaded on first use. It uses `bpf_snprintf` with `%pS`, since Linux 5.13.
enum KernelNamesProgram {
    Unloaded,
    Loaded(Box<KernelNamesSkel<'static>>),
    Refused,
}

impl KernelNamesProgram {
    fn symbol(&mut self, address: u64) -> Option<String> {
        if matches!(self, Self::Unloaded) {
            *self = load().map_or(Self::Refused, |skeleton| Self::Loaded(Box::new(skeleton)));
        }
        match self {
            Self::Loaded(skeleton) => symbol(skeleton, address).ok(),
            Self::Unloaded | Self::Refused => None,
        }
    }
}

fn load() -> libbpf_rs::Result<KernelNamesSkel<'static>> {
    // A few bytes, once for each opener: its thread lives as long as the process.
    let storage = Box::leak(Box::new(Storage::uninit()));
    KernelNamesSkelBuilder::default().open(storage)?.load()
}

fn symbol(skeleton: &mut KernelNamesSkel<'_>, address: u64) -> libbpf_rs::Result<String> {
    let missing = || libbpf_rs::Error::from(io::Error::other("the program has no data"));
    skeleton.maps.bss_data.as_deref_mut().ok_or_else(missing)?.kernel_address = address;
    skeleton.progs.name_kernel_address.test_run(ProgramInput::default())?;
    let symbol = &skeleton.maps.bss_data.as_deref().ok_or_else(missing)?.kernel_symbol;
    let bytes = symbol.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    Ok(String::from_utf8(bytes).unwrap_or_default())
}
