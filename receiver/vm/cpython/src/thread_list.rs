//! The threads of an interpreter, from the list that it keeps of them.
//!
//! Walks don't use the list: they find the state of the thread that they interrupt. It is for those who ask about a process that
//! need not run at that moment.

use std::io;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_process::tls::TlsLocation;
use sidewinder_vm_runtime::pthread::PthreadLayout;
use sidewinder_vm_runtime::{Function, FunctionError};

use super::interpreter::Interpreter;
use super::layout::{Groups, Layout, ThreadList};

/// The most threads that are listed.
const THREADS_MAX: usize = 256;
/// The most frames at the end of a thread's stack that belong to no function.
const SHIMS_MAX: usize = 8;

impl Interpreter {
    /// The `PyThreadState`s of a process in which this file is loaded with the given bias, newest first: 256 at most. Empty if
    /// the interpreter has not been initialised. The process may change the list meanwhile, so that any of them may be gone.
    ///
    /// # Errors
    /// If memory of the process can't be read.
    pub fn thread_states(&self, bias: u64, memory: &impl ForeignMemory) -> io::Result<Vec<Avma>> {
        let follow = |at: u64, offset: u32| memory.word(Avma(at.wrapping_add(offset.into())));
        let ThreadList { interpreter, first_thread, next_thread } = self.thread_list;
        let main = follow(self.runtime.0.wrapping_add(bias), interpreter)?;
        let mut states = Vec::new();
        let mut next = if main == 0 { 0 } else { follow(main, first_thread)? };
        while next != 0 && states.len() < THREADS_MAX {
            states.push(Avma(next));
            next = follow(next, next_thread)?;
        }
        Ok(states)
    }

    /// Whether the thread with this state has the pointer to it at a location where walks would look for it. `None` if the
    /// location is in a block of the dynamic linker, whose address is not known here, or the layout of threads is not known.
    ///
    /// # Errors
    /// If memory of the process can't be read.
    pub fn is_state_at(
        &self,
        location: TlsLocation,
        state: Avma,
        memory: &impl ForeignMemory,
        pthread: Option<PthreadLayout>,
    ) -> io::Result<Option<bool>> {
        let Some(PthreadLayout { structure, .. }) = self.thread_state.pthread(pthread) else {
            return Ok(None);
        };
        let thread_id = memory.word(Avma(state.0.wrapping_add(self.layout.thread_id.into())))?;
        let thread_pointer = thread_id.wrapping_sub(structure.cast_unsigned());
        let at = match location {
            TlsLocation::Static { offset } => thread_pointer.wrapping_add_signed(offset),
            TlsLocation::Indirect { pointer, offset } => {
                memory.word(Avma(thread_pointer.wrapping_add_signed(pointer)))?.wrapping_add(offset)
            }
            TlsLocation::Dynamic { .. } => return Ok(None),
        };
        Ok(Some(memory.word(Avma(at))? == state.0))
    }
}

impl Layout {
    /// The function that a thread runs, or would go on with: that of its innermost frame. `None` if the thread runs none.
    ///
    /// # Errors
    /// See [`FunctionError`]. A thread that runs may also have left its frame before that was read.
    pub fn innermost_function(
        &self,
        state: Avma,
        memory: &impl ForeignMemory,
    ) -> Result<Option<Function>, FunctionError> {
        let word = |at: u64, offset: u16| memory.word(Avma(at.wrapping_add(offset.into())));
        let holder = self.cframe.map_or(Ok(state.0), |cframe| word(state.0, cframe))?;
        let mut frame = word(holder, self.current_frame)?;
        for _ in 0..SHIMS_MAX {
            if frame == 0 {
                return Ok(None);
            }
            let owner = word(frame, self.owner)? as u8;
            if self.groups != Groups::EndsAtShim || owner < 3 {
                // The low bits are tags since 3.14.
                let code = Avma(word(frame, self.code)? & !7);
                return self.read_function(memory, code, self.read_cookie(memory, code)?).map(Some);
            }
            frame = word(frame, self.previous)?;
        }
        Ok(None)
    }
}
