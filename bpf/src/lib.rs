//! skeleton test
#![allow(missing_docs)]
mod skel { include!(concat!(env!("OUT_DIR"), "/sample.skel.rs")); }
mod intf { include!(concat!(env!("OUT_DIR"), "/intf.rs")); }
