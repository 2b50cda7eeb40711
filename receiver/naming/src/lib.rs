//! Names of frames.
//!
//! Start at [`NamingStage`], which reads the messages of sampling, and [`Namer`], which names frames.
//!
//! | Module                           | Contents                                                                       |
//! |----------------------------------|--------------------------------------------------------------------------------|
//! | `namer`                          | the stage, the namer, and the look-up of a stack's names, once for each stack  |
//! | `jit`                            | names of code that processes generate at run time                              |
//! | [`vm`], [`source_maps`]          | names of functions of language runtimes; where scripts come from               |
//! | `kernel_names`                   | names of functions of the kernel                                               |
//! | `containers`                     | names of containers and pods                                                   |
#![forbid(unsafe_code)]

mod containers;
mod jit;
mod kernel_names;
mod namer;
pub mod source_maps;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
pub mod vm;

pub use namer::{
    Forgotten, FrameLocation, NameCounts, NamedFrame, Namer, NamingOptions, NamingStage, RenamedFrames,
    STACK_MISSING, STACK_MISSING_SUMMARY, StackNames, UnnamedCause, Update, WalkedStack,
    truncation_with_reason, truncation_with_summary,
};
