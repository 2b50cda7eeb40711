//! What machine code does to its frame.
//!
//! `state` is what can be known of a frame, `flow` the ways through a function; what an instruction makes of a frame is
//! the architecture's ([`Stepper`](crate::arch::Stepper)). After Bastian, Kell and Zappa Nardelli, "Reliable and fast
//! DWARF-based stack unwinding" (OOPSLA 2019).

pub(crate) mod flow;
pub(crate) mod state;
