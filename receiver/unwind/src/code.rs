//! Analysis of what machine code does to its frame.
//!
//! `piece` is contiguous code, and `span` a part of it with one rule. `state` is the abstract state of a frame, `flow`
//! follows the paths through a function; the effect of an instruction on a frame is architecture-specific
//! ([`Stepper`](crate::arch::Stepper)). After Bastian, Kell and Zappa Nardelli, "Reliable and fast DWARF-based stack
//! unwinding" (OOPSLA 2019).

pub(crate) mod flow;
pub(crate) mod piece;
pub(crate) mod span;
pub(crate) mod state;
