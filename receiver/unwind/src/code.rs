//! What x86-64 machine code does to its frame.
//!
//! `state` is what can be known of a frame, `step` what an instruction makes of it, `flow` the ways through a
//! function. After Bastian, Kell and Zappa Nardelli, "Reliable and fast DWARF-based stack unwinding" (OOPSLA
//! 2019).

pub(crate) mod flow;
pub(crate) mod state;
pub(crate) mod step;
