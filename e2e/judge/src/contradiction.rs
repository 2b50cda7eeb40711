//! What a stack says that cannot be, told from the binaries alone: no chain of the program needs to be known.

use std::fmt;
use std::sync::Arc;

use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::DecodedFrame;

use crate::judge::{Judge, Place, describe};

/// Why a stack was never there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contradiction {
    /// A caller's address follows no call.
    NoCall {
        /// The file, and the address as it states it.
        at: String,
        /// The stack, outermost first.
        stack: String,
    },
    /// It is said to be complete, and its outermost frame lies where no thread starts.
    NoStart {
        /// The file, and the address as it states it.
        at: String,
        /// The stack, outermost first.
        stack: String,
    },
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCall { at, stack } => write!(f, "no call before {at}: {stack}"),
            Self::NoStart { at, stack } => write!(f, "no thread starts at {at}: {stack}"),
        }
    }
}

/// Functions that Go's signal handlers put on top of whatever ran: what they return to was interrupted.
pub const INJECTED: [&str; 3] = ["runtime.asyncPreempt", "runtime.asyncPreempt.abi0", "runtime.sigpanic"];
/// Functions that end in a landing pad of an exception: at last they put its address where the return address was of
/// the frames that are thrown away.
pub const LANDING: [&str; 4] =
    ["_Unwind_RaiseException", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow", "_Unwind_ForcedUnwind"];
/// How the names of V8's builtins begin to whose first instruction the deoptimizer returns, after it has replaced the frames of
/// compiled code by those of others.
const CONTINUATIONS: &str = "Builtins_ContinueTo";

impl Judge {
    /// The first thing about a stack (leaf first) that cannot be. Frames of which there is no file to ask are passed
    /// over, and so is a mark that the stack was cut.
    pub fn contradiction(&mut self, stack: &[Arc<DecodedFrame>], is_complete: bool) -> Option<Contradiction> {
        let mut places = self.places(stack);
        // Those of an interpreter stand behind the native frame that executes them, which may be the one that was interrupted.
        places.retain(|place| place.frame.frame_type() != Some(FrameType::CPython));
        if !is_complete && !places.is_empty() {
            places.remove(0);
        }
        let leaf = places.iter().rfind(|place| place.binary.is_some());
        let is_landing = leaf.is_some_and(|leaf| leaf.is_any_of(&LANDING));
        let callers = places.iter().zip(places.iter().skip(1)).filter(|_| !is_landing);
        if let Some((caller, _)) = callers.rev().find(|(caller, callee)| !may_have_called(caller, callee)) {
            return Some(Contradiction::NoCall { at: name(caller), stack: describe(&places) });
        }
        let outermost = places.first().filter(|outermost| is_complete && !is_start(outermost))?;
        Some(Contradiction::NoStart { at: name(outermost), stack: describe(&places) })
    }
}

fn may_have_called(caller: &Place<'_>, callee: &Place<'_>) -> bool {
    let Some(binary) = caller.binary else { return true };
    let is_called = || binary.follows_call(caller.svma + 1) || is_continuation(caller);
    // What was interrupted may have been anywhere; nobody calls the code that a signal handler returns to.
    let was_interrupted = is_signal_frame(callee) || callee.is_any_of(&INJECTED);
    was_interrupted || is_signal_frame(caller) || is_called() || is_start(caller)
}

fn is_continuation(place: &Place<'_>) -> bool {
    place.names().iter().any(|name| name.starts_with(CONTINUATIONS))
        && place.binary.is_some_and(|binary| binary.is_function_start(place.svma))
}

fn is_signal_frame(place: &Place<'_>) -> bool {
    place.binary.is_some_and(|binary| binary.is_signal_frame(place.svma))
}

/// Where a thread starts without a call, its outermost frame is the very first instruction of what it starts in.
fn is_start(place: &Place<'_>) -> bool {
    place.is_start() || place.binary.is_some_and(|binary| binary.is_start(place.svma + 1))
}

fn name(place: &Place<'_>) -> String {
    let file = place.frame.mapping.as_ref().map_or("?", |mapping| &*mapping.filename);
    let function = place.names().first().map(|name| format!(" ({name})")).unwrap_or_default();
    format!("{file}+{:#x}{function}", place.svma)
}
