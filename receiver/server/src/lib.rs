//! What is served, and received, over the network.
//!
//! | Module          | Contents                                                                            |
//! |-----------------|-------------------------------------------------------------------------------------|
//! | `http_server`   | accepts connections, and serves pages over HTTP                                     |
//! | `otlp_server`   | receives OTLP, over gRPC and HTTP                                                   |
//! | [`live`]        | the live page                                                                       |
//! | [`annotate`]    | the source and the instructions of functions, for pages and the terminal            |
#![forbid(unsafe_code)]

pub mod annotate;
mod http_server;
pub mod live;
mod otlp_server;

pub use http_server::{Handler, PageResponse, Server, connections};
pub use otlp_server::OtlpServer;
