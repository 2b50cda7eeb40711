//! OTLP profiles: the dictionary, the encoder, the conformance rules and the exporters.
#![forbid(unsafe_code)]
