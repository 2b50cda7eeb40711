//! Names of kernel functions, which the kernel resolves one at a time.

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::load::Storage;
use crate::skeleton::kernel_names::{KernelNamesSkel, KernelNamesSkelBuilder};

/// The loaded program. It uses `bpf_snprintf` with `%pS`, since Linux 5.13.
pub(crate) struct KernelNamesProgram<'obj> {
    skeleton: KernelNamesSkel<'obj>,
}

impl<'obj> KernelNamesProgram<'obj> {
    /// Loads the program. Requires `CAP_BPF` and `CAP_PERFMON`.
    ///
    /// # Errors
    /// If the kernel refuses it: before Linux 5.13, or without the capabilities.
    pub(crate) fn load(storage: &'obj mut Storage) -> libbpf_rs::Result<Self> {
        let skeleton = KernelNamesSkelBuilder::default().open(storage)?.load()?;
        Ok(Self { skeleton })
    }

    /// The kernel's name for an address: `name+0xOFFSET/0xSIZE`, with ` [module]` for a module's function, or the address
    /// as a number if there is no function.
    ///
    /// # Errors
    /// If the kernel refuses to run the program.
    pub(crate) fn symbol(&mut self, address: u64) -> libbpf_rs::Result<String> {
        let missing = || libbpf_rs::Error::from(std::io::Error::other("the program has no data"));
        self.skeleton.maps.bss_data.as_deref_mut().ok_or_else(missing)?.kernel_address = address;
        self.skeleton.progs.name_kernel_address.test_run(ProgramInput::default())?;
        let symbol = &self.skeleton.maps.bss_data.as_deref().ok_or_else(missing)?.kernel_symbol;
        let bytes = symbol.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
        Ok(String::from_utf8(bytes).unwrap_or_default())
    }
}
