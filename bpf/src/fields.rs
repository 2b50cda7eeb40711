//! Fields of kernel types that may be missing from a kernel, and what is lost without them.

use std::mem::MaybeUninit;
use std::path::Path;

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::arch;
use crate::field_names::FieldNames;
use crate::intf;
use crate::load::LoadError;
use crate::skeleton::fields::FieldsSkelBuilder;

/// A field that the programs can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelField {
    /// Its index in `c/intf/cpu.h`.
    number: u32,
    /// Its names.
    pub(crate) names: FieldNames,
    /// What is lost without it.
    pub(crate) cost: &'static str,
}

impl KernelField {
    pub(crate) const ALL: [Self; 6] = [
        Self {
            number: intf::SW_FIELD_IN_EXECVE,
            names: FieldNames {
                id: "field_in_execve",
                field: "task_struct.in_execve",
                name: "telling tasks inside execve (task_struct.in_execve)",
            },
            cost: "interrupts inside execve are walked with the registers of the replaced program, and their \
                   stacks may be wrong",
        },
        Self {
            number: intf::SW_FIELD_START_STACK,
            names: FieldNames {
                id: "field_start_stack",
                field: "mm_struct.start_stack",
                name: "the start of a process's first stack (mm_struct.start_stack)",
            },
            cost: "forked children have no user stack until their mappings are read, and stacks that are walked late \
                   may be missing their root",
        },
        Self {
            number: intf::SW_FIELD_START_CODE,
            names: FieldNames {
                id: "field_start_code",
                field: "mm_struct.start_code",
                name: "whether a child still runs its parent's code (mm_struct.start_code)",
            },
            cost: "forked children have no user stack until their mappings are read",
        },
        Self {
            number: intf::SW_FIELD_EXE_FILE,
            names: FieldNames {
                id: "field_exe_file",
                field: "mm_struct.exe_file",
                name: "whether a child still runs its parent's program (mm_struct.exe_file)",
            },
            cost: "forked children have no user stack until their mappings are read",
        },
        Self {
            number: intf::SW_FIELD_THREAD_POINTER,
            names: arch::THREAD_POINTER,
            cost: "samples have no spans and no labels, and stacks that are walked later may be missing their root",
        },
        Self {
            number: intf::SW_FIELD_RUN_DELAY,
            names: FieldNames {
                id: "field_run_delay",
                field: "task_struct.sched_info.run_delay",
                name: "the time that threads wait for a CPU (task_struct.sched_info)",
            },
            cost: "off-CPU time includes the time that threads are runnable",
        },
    ];

    /// The fields that are missing from the kernel of `btf`, or by default from the running kernel. A program checks them
    /// in the kernel's type information, with the same checks as the programs that use the fields.
    ///
    /// # Errors
    /// If the kernel refuses the program, or to run it for us (before Linux 5.10).
    pub(crate) fn missing(btf: Option<&Path>) -> Result<Vec<Self>, LoadError> {
        let refused = |doing| move |source| LoadError::Refused { doing, source };
        let mut builder = FieldsSkelBuilder::default();
        if let Some(btf) = btf {
            builder
                .obj_builder
                .btf_custom_path(btf)
                .map_err(refused("setting the path of type information"))?;
        }
        let mut storage = MaybeUninit::uninit();
        let open = builder.open(&mut storage).map_err(refused("opening the object"))?;
        let skeleton = open.load().map_err(refused("loading"))?;
        let asking = "finding missing fields";
        skeleton.progs.find_missing_fields.test_run(ProgramInput::default()).map_err(refused(asking))?;
        // Without memory for its variables the program would not have been loaded.
        let missing = skeleton.maps.bss_data.as_deref().map_or(0, |data| data.missing_fields);
        Ok(Self::ALL.into_iter().filter(|field| missing >> field.number & 1 == 1).collect())
    }
}
