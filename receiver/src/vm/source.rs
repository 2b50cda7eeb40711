//! A runtime of a process, as its functions are read.

use std::sync::Arc;

use sidewinder_vm::RuntimeFunctions;

use sidewinder_base::foreign::ForeignProcess;

/// What reads the functions of a runtime that a process runs, and the memory in which they are.
#[derive(Debug)]
pub(crate) struct RuntimeSource {
    pub(super) functions: Arc<dyn RuntimeFunctions>,
    pub(super) memory: ForeignProcess,
}

impl RuntimeSource {
    pub(crate) fn new(functions: Arc<dyn RuntimeFunctions>, memory: ForeignProcess) -> Self {
        Self { functions, memory }
    }
}
