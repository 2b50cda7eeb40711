//! What verifiers of different kernels count, for `vm-test` and for the test of the running kernel: [`verifier`].
#![forbid(unsafe_code)]

pub mod verifier;
