use sidewinder_address::Svma;

/// One instruction as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedInstruction {
    /// Its first byte.
    pub start: Svma,
    /// The first byte after it.
    pub end: Svma,
    /// Where it jumps to or which data beside the code it uses, if its bytes say so.
    pub target: Option<Svma>,
    /// In the notation of the architecture's manufacturer.
    pub text: String,
}
