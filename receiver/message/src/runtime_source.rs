//! A runtime of a process, as its functions are read.

use std::sync::Arc;

use sidewinder_vm::RuntimeFunctions;

use sidewinder_base::foreign::ForeignProcess;

/// What reads the functions of a runtime that a process runs, and the memory in which they are.
#[derive(Debug)]
pub struct RuntimeSource {
    /// What reads the functions.
    pub functions: Arc<dyn RuntimeFunctions>,
    /// The memory in which they are.
    pub memory: ForeignProcess,
}

impl RuntimeSource {
    /// A runtime whose functions are in this memory.
    pub fn new(functions: Arc<dyn RuntimeFunctions>, memory: ForeignProcess) -> Self {
        Self { functions, memory }
    }
}
