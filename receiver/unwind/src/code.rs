//! What machine code does to its frame.
//!
//! `piece` is code that lies together, and `span` a part of it with one rule. `state` is what can be known of a frame, `flow` the ways through a function; what an instruction makes of a frame is
//! the architecture's ([`Stepper`](crate::arch::Stepper)). After Bastian, Kell and Zappa Nardelli, "Reliable and fast
//! DWARF-based stack unwinding" (OOPSLA 2019).

pub(crate) mod flow;
pub(crate) mod piece;
pub(crate) mod span;
pub(crate) mod state;
