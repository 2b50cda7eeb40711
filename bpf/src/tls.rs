//! Thread-local data of processes, as programs find it.

use crate::intf::{self, sw_tls_variable};

/// How to find each thread's copy of a thread-local variable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PublishedTlsLocation {
    /// In the static TLS block, which each thread gets with its control block.
    Static {
        /// Offset from the thread pointer.
        offset: i32,
    },
    /// In a dynamic TLS block, which a thread gets on first use.
    Dynamic {
        /// The module's index in the thread's dynamic thread vector, from 1 to [`Self::MODULE_MAX`].
        module: u16,
        /// Offset from the start of the block.
        offset: i32,
        /// The format of the vector.
        vector: TlsVector,
    },
    /// In a block that a word at a fixed place of the thread points to, which may be null.
    Indirect {
        /// Offset of the word from the thread pointer.
        pointer: i16,
        /// Offset from the start of the block.
        offset: i32,
    },
}

/// The format of dynamic thread vectors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsVector {
    /// glibc's.
    Glibc,
    /// musl's.
    Musl,
}

impl PublishedTlsLocation {
    /// The highest supported module index.
    pub const MODULE_MAX: u16 = intf::SW_TLS_MODULE_MAX as u16;

    pub(crate) fn encode(self) -> sw_tls_variable {
        let (offset, module, model) = match self {
            Self::Static { offset } => (offset, 0, intf::SW_TLS_STATIC),
            Self::Dynamic { module, offset, vector: TlsVector::Glibc } => {
                (offset, module, intf::SW_TLS_GLIBC)
            }
            Self::Dynamic { module, offset, vector: TlsVector::Musl } => (offset, module, intf::SW_TLS_MUSL),
            Self::Indirect { pointer, offset } => (offset, pointer.cast_unsigned(), intf::SW_TLS_INDIRECT),
        };
        sw_tls_variable { offset, module, model: model as u16 }
    }
}

/// Where threads publish their context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsVariable {
    /// Where a variable points to, unless it is null.
    Variable {
        /// The variable.
        at: PublishedTlsLocation,
        /// What it points to.
        to: Pointee,
    },
    /// The pprof labels of the goroutine that a thread runs.
    Goroutine {
        /// Offset of the thread's `g` from the thread pointer, not 0; `None`: it is in a register alone, where the
        /// architecture has one for it.
        g: Option<i32>,
        /// Offset of `curg` in an `m`: a multiple of 8 below 2048.
        curg: u16,
        /// Offset of `labels` in a `g`, likewise.
        labels: u16,
        /// Whether labels are a slice, as since Go 1.24, or a map.
        is_slice: bool,
    },
}

/// What a thread's variable points to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pointee {
    /// The context record of the thread (OTEP 4947).
    Record,
    /// A set of labels (custom-labels, ABI 1).
    LabelSet,
}

impl TlsVariable {
    /// The maximum number of variables per process.
    pub const MAX: usize = intf::SW_TLS_VARIABLES_MAX as usize;

    pub(crate) fn encode(self) -> sw_tls_variable {
        match self {
            Self::Variable { at, to: Pointee::Record } => at.encode(),
            Self::Variable { at, to: Pointee::LabelSet } => {
                let plain = at.encode();
                sw_tls_variable { model: plain.model | intf::SW_TLS_LABEL_SET as u16, ..plain }
            }
            Self::Goroutine { g, curg, labels, is_slice } => {
                let model = if is_slice { intf::SW_TLS_GO_SLICE } else { intf::SW_TLS_GO_MAP };
                let module = (curg / 8) & 0xff | (labels / 8) << 8;
                sw_tls_variable { offset: g.unwrap_or(0), module, model: model as u16 }
            }
        }
    }
}
