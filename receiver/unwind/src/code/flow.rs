//! The control flow of a function, and the state of its frame along each path.
//!
//! An abstract interpretation: a block's state is what all paths to it agree on. States only ever lose knowledge, of
//! which they have a bounded amount, so each block is walked a bounded number of times; a step budget bounds the work
//! for any code.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::compact_state::CompactState;
use super::piece::CodeSlice;
use super::state::AbstractState;
use super::value::AbstractValue;
use crate::arch::{Instruction, Stepper};
use crate::memory::{Memory, Reservation};

/// How often a function is analyzed again because a call was found not to return.
const MAX_PASSES: usize = 8;

/// The steps and the memory that remain for the instructions of a file.
pub(crate) struct AnalysisBudget<'memory> {
    pub(crate) steps_left: u64,
    pub(crate) memory: Memory<'memory>,
}

impl<'memory> AnalysisBudget<'memory> {
    /// Steps for each byte of code: instructions have four bytes on average, and most are visited three times.
    const STEPS_PER_BYTE: u64 = 16;

    pub(crate) fn for_bytes(bytes: u64, memory: Memory<'memory>) -> Self {
        Self { steps_left: bytes.saturating_mul(Self::STEPS_PER_BYTE), memory }
    }

    pub(crate) fn consume(&mut self) -> bool {
        let left = self.steps_left.checked_sub(1);
        self.steps_left = left.unwrap_or(0);
        left.is_some()
    }
}

/// How a call continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterCall {
    /// The next instruction is executed, with the frame of the call.
    Returns,
    /// The next instruction, if it is ever executed, is reached by other paths.
    DoesNotReturn,
    /// It returns unless what other paths know of the next instruction contradicts that.
    ReturnsUnlessContradicted,
}

/// What is known of a function in addition to its code.
pub(crate) trait FlowPolicy {
    /// Whether a path may continue at this address.
    fn may_enter(&self, at: u32) -> bool;

    /// Whether another function begins at this address, which makes a jump to it a tail call.
    fn is_function(&self, at: u32) -> bool;

    /// Adds facts to the state before an instruction is executed.
    fn before_instruction(&mut self, at: u32, state: &mut AbstractState);

    /// Whether the call at this address returns. `target` is the called address, if the instruction contains it.
    fn after_call(&mut self, instruction: &Instruction, target: Option<u32>) -> AfterCall;
}

/// What was found on the paths from a seed.
#[derive(Clone, Default)]
pub(crate) struct FlowEvidence {
    /// A path left the function properly, by a return or a jump to another function: with the return address on top of
    /// the stack and the frame pointer set to the caller's.
    pub(crate) consistent_exit: bool,
    /// A path left the function with something else on top of the stack.
    pub(crate) inconsistent_exit: bool,
    /// A path reached code that earlier seeds had reached, with a frame that agrees with theirs.
    pub(crate) agreement: bool,
    /// The same, with a frame that contradicts theirs.
    pub(crate) contradiction: bool,
    /// A path ran into bytes that are no instruction, or into one that no user program may execute.
    pub(crate) no_code: bool,
    /// A path left the function in some way, or may have.
    pub(crate) returns: bool,
    /// The states at jumps to addresses that the code doesn't contain.
    pub(crate) indirect_jumps: Vec<AbstractState>,
}

impl FlowEvidence {
    /// Whether the stack pointer that the seed assumed is proven: it leads to the return address, or to code where the
    /// stack pointer is known.
    pub(crate) fn proves_seed(&self) -> bool {
        (self.consistent_exit || self.agreement) && !self.refutes_seed()
    }

    pub(crate) fn refutes_seed(&self) -> bool {
        self.inconsistent_exit || self.contradiction
    }
}

struct BasicBlock {
    state: CompactState,
    end: u32,
    /// The call that this block follows, if no other path leads here.
    after_call: Option<u32>,
    /// The seed that first reached it.
    generation: u32,
}

impl BasicBlock {
    /// What it takes as the entry of a tree, whose nodes are half empty at worst.
    fn memory_bytes(&self) -> usize {
        2 * size_of::<(u32, Self)>() + self.state.heap_bytes()
    }
}

/// A call that may not return.
struct PendingCall {
    at: u32,
    /// The next instruction, and the state before it.
    next: u32,
    state: CompactState,
}

impl PendingCall {
    /// What it takes in a queue that grows by doubling.
    fn memory_bytes(&self) -> usize {
        2 * size_of::<Self>() + self.state.heap_bytes()
    }
}

/// The control flow of one function.
pub(crate) struct Flow<'run, 'data, 'memory, G> {
    piece: CodeSlice<'data>,
    pub(crate) policy: G,
    stepper: &'run mut Stepper,
    budget: &'run mut AnalysisBudget<'memory>,
    blocks: BTreeMap<u32, BasicBlock>,
    memory: Reservation<'memory>,
    worklist: Vec<u32>,
    calls: VecDeque<PendingCall>,
    do_not_return: BTreeSet<u32>,
    contradicted: bool,
    generation: u32,
    evidence: FlowEvidence,
    is_trial: bool,
    /// Whether steps or memory were not enough.
    pub(crate) exhausted: bool,
}

/// The current position of a walk.
struct FlowCursor {
    block: u32,
    at: u32,
    after_call: Option<u32>,
    /// The next block's start.
    limit: u32,
}

impl<'run, 'data, 'memory, G: FlowPolicy> Flow<'run, 'data, 'memory, G> {
    pub(crate) fn new(
        piece: CodeSlice<'data>,
        guide: G,
        stepper: &'run mut Stepper,
        budget: &'run mut AnalysisBudget<'memory>,
    ) -> Self {
        let memory = budget.memory.nothing();
        Self {
            piece,
            policy: guide,
            stepper,
            budget,
            memory,
            blocks: BTreeMap::new(),
            worklist: Vec::new(),
            calls: VecDeque::new(),
            do_not_return: BTreeSet::new(),
            contradicted: false,
            generation: 0,
            evidence: FlowEvidence::default(),
            is_trial: false,
            exhausted: false,
        }
    }

    /// Follows all paths from an address. What earlier seeds have reached stays unchanged.
    pub(crate) fn seed(&mut self, at: u32, state: &AbstractState) -> FlowEvidence {
        self.generation += 1;
        for pass in 0..MAX_PASSES {
            self.contradicted = false;
            self.evidence = FlowEvidence::default();
            if pass > 0 {
                self.retract();
            }
            self.enter(at, state);
            self.process_worklist();
            if !self.contradicted || self.exhausted {
                break;
            }
            self.exhausted = pass + 1 == MAX_PASSES;
        }
        std::mem::take(&mut self.evidence)
    }

    /// Follows all paths from an address that may never be reached, or not with this frame, and keeps the result only
    /// if it proves itself, or, where it `may_not_return`, if no path leaves it.
    pub(crate) fn try_seed(
        &mut self,
        at: u32,
        state: &AbstractState,
        may_not_return: bool,
    ) -> Option<FlowEvidence> {
        self.is_trial = true;
        let met = self.seed(at, state);
        self.is_trial = false;
        let stays = may_not_return && !met.returns && !met.refutes_seed();
        let is_proven = (met.proves_seed() || stays) && !met.no_code && !self.exhausted;
        if !is_proven {
            self.retract();
        }
        is_proven.then_some(met)
    }

    /// Discards what the last seed has reached.
    pub(crate) fn retract(&mut self) {
        let Self { blocks, memory, generation, .. } = self;
        blocks.retain(|_, block| {
            let stays = block.generation != *generation;
            if !stays {
                memory.shrink(block.memory_bytes());
            }
            stays
        });
    }

    /// Whether an instruction at this address was reached.
    pub(crate) fn has_reached(&self, at: u32) -> bool {
        self.unreached_from(at) != at
    }

    fn process_worklist(&mut self) {
        loop {
            if let Some(block) = self.worklist.pop() {
                self.walk(block);
            } else if let Some(call) = self.calls.pop_front() {
                self.memory.shrink(call.memory_bytes());
                self.edge(call.next, &call.state.expand(), Some(call.at), None);
            } else {
                return;
            }
            let has_failed = self.is_trial && (self.evidence.refutes_seed() || self.evidence.no_code);
            if self.exhausted || has_failed {
                self.worklist.clear();
                self.calls.drain(..).for_each(|call| self.memory.shrink(call.memory_bytes()));
            }
        }
    }

    fn walk(&mut self, start: u32) {
        let Some(block) = self.blocks.get(&start) else { return };
        let mut state = block.state.expand();
        let limit = self.block_after(start);
        let call_before = block.after_call;
        let mut walk = FlowCursor { block: start, at: start, after_call: call_before, limit };
        loop {
            if walk.at == walk.limit {
                self.edge(walk.at, &state, walk.after_call, None);
                break;
            }
            if walk.at > walk.limit {
                walk.limit = self.block_after(walk.at - 1);
                continue;
            }
            self.exhausted |= !self.budget.consume();
            if self.exhausted {
                break;
            }
            let instruction = self.piece.decode(walk.at);
            let Some(instruction) = instruction.filter(|instruction| !instruction.is_privileged()) else {
                self.evidence.no_code = true;
                break;
            };
            if instruction.begins_function(&state) {
                if let Some(call) = call_before {
                    self.contradicted |= self.do_not_return.insert(call);
                }
                break;
            }
            if !instruction.is_padding() {
                walk.after_call = None;
            }
            self.policy.before_instruction(walk.at, &mut state);
            let goes_on = self.follow(&instruction, &mut state, &mut walk);
            walk.at += instruction.len();
            if !goes_on {
                break;
            }
        }
        if let Some(block) = self.blocks.get_mut(&start) {
            block.end = walk.at;
        }
    }

    /// Executes an instruction and enters the targets of its jumps. Returns whether the next instruction follows.
    fn follow(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        walk: &mut FlowCursor,
    ) -> bool {
        let target = instruction.target();
        if instruction.is_direct_jump() {
            if let Some(target) = target {
                let taken = self.stepper.jump(instruction, state);
                self.edge(target, &taken, None, Some(walk));
            }
        } else if instruction.is_call() {
            self.stepper.step(instruction, state);
            return self.goes_on_after_call(instruction, target, state, walk);
        } else if instruction.is_return() {
            self.exit(state);
        } else if instruction.is_indirect_jump() {
            self.evidence.returns = true;
            // A jump through a word at an address in the code is a tail call.
            if instruction.stated_word().is_some() {
                self.exit(state);
            } else {
                let jumps = &mut self.evidence.indirect_jumps;
                self.exhausted |= !self.memory.push(jumps, state.clone());
            }
        }
        self.stepper.step(instruction, state);
        !instruction.is_last()
    }

    fn goes_on_after_call(
        &mut self,
        instruction: &Instruction,
        target: Option<u32>,
        state: &AbstractState,
        walk: &FlowCursor,
    ) -> bool {
        if self.do_not_return.contains(&walk.at) {
            return false;
        }
        let after = self.policy.after_call(instruction, target);
        if after == AfterCall::ReturnsUnlessContradicted {
            let next = walk.at + instruction.len();
            let call = PendingCall { at: walk.at, next, state: CompactState::from(state) };
            let has_room = self.memory.grow(call.memory_bytes());
            self.exhausted |= !has_room;
            if has_room {
                self.calls.push_back(call);
            }
        }
        after == AfterCall::Returns
    }

    /// Adds a path to `at`. `after_call` is the call before it, if only padding lies between.
    fn edge(
        &mut self,
        at: u32,
        state: &AbstractState,
        after_call: Option<u32>,
        walk: Option<&mut FlowCursor>,
    ) {
        if at < self.piece.start || at >= self.piece.end() || !self.policy.may_enter(at) {
            // What follows a call that doesn't return may be anything.
            if after_call.is_none() {
                self.evidence.returns = true;
                if self.policy.is_function(at) {
                    self.exit(state);
                }
            }
            return;
        }
        let generation = self.generation;
        let Some(block) = self.blocks.get_mut(&at) else {
            self.split_at(at, walk);
            self.enter(at, state);
            if let Some(block) = self.blocks.get_mut(&at) {
                block.after_call = after_call;
            }
            return;
        };
        let mut held = block.state.expand();
        if block.generation != generation {
            if after_call.is_none() {
                let agrees = held.stack_pointer().is_some() && held.stack_pointer() == state.stack_pointer();
                self.evidence.agreement |= agrees;
                self.evidence.contradiction |= held.contradicts(state);
            }
            return;
        }
        let contradicts = held.contradicts(state);
        match (block.after_call, after_call) {
            (Some(call), None) if contradicts => {
                self.do_not_return.insert(call);
                self.contradicted = true;
            }
            (None, Some(_)) if contradicts => {}
            (call, _) => {
                if call != after_call {
                    block.after_call = None;
                }
                if held.join(state) {
                    // It knows less, and takes no more memory.
                    let before_bytes = block.memory_bytes();
                    block.state = CompactState::from(&held);
                    self.memory.shrink(before_bytes.saturating_sub(block.memory_bytes()));
                    self.worklist.push(at);
                }
            }
        }
    }

    fn exit(&mut self, state: &AbstractState) {
        self.evidence.returns = true;
        let Some(is_right) = state.may_return() else { return };
        self.evidence.inconsistent_exit |= !is_right;
        self.evidence.consistent_exit |=
            is_right && state.frame_pointer() == AbstractValue::CallerFramePointer;
    }

    /// Makes room for a new block at `at`: ends the current walk there, and has the block that contains `at` walked again.
    fn split_at(&mut self, at: u32, walk: Option<&mut FlowCursor>) {
        if let Some(walk) = walk {
            if walk.at < at {
                walk.limit = walk.limit.min(at);
            } else if walk.block < at {
                self.worklist.push(walk.block);
            }
        }
        let before = self.blocks.range(..at).next_back();
        if let Some((start, block)) = before
            && block.end > at
        {
            self.worklist.push(*start);
        }
    }

    fn enter(&mut self, at: u32, state: &AbstractState) {
        if self.piece.decode(at).is_some() && !self.blocks.contains_key(&at) {
            let (state, generation) = (CompactState::from(state), self.generation);
            let block = BasicBlock { state, end: at, after_call: None, generation };
            if !self.memory.grow(block.memory_bytes()) {
                self.exhausted = true;
                return;
            }
            self.blocks.insert(at, block);
            self.worklist.push(at);
        }
    }

    fn block_after(&self, at: u32) -> u32 {
        self.blocks.range(at.saturating_add(1)..).next().map_or(u32::MAX, |(start, _)| *start)
    }

    /// The first address at or after `at` that no path has reached.
    pub(crate) fn unreached_from(&self, mut at: u32) -> u32 {
        while let Some((_, block)) = self.blocks.range(..=at).next_back()
            && block.end > at
        {
            at = block.end;
        }
        at
    }

    /// Calls `show` with each instruction that was reached, in the order of blocks, and the state before it.
    pub(crate) fn for_each_instruction(
        &mut self,
        mut show: impl FnMut(&mut G, &Instruction, &AbstractState),
    ) {
        let blocks = std::mem::take(&mut self.blocks);
        for (start, block) in &blocks {
            let mut state = block.state.expand();
            let mut at = *start;
            while at < block.end {
                let Some(instruction) = self.piece.decode(at) else { break };
                show(&mut self.policy, &instruction, &state);
                self.policy.before_instruction(at, &mut state);
                self.stepper.step(&instruction, &mut state);
                at += instruction.len();
            }
        }
        self.blocks = blocks;
    }
}
