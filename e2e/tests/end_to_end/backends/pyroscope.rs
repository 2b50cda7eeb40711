//! Pyroscope 2, as one process.

use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sidewinder_e2e_support::{collector, http};
use sidewinder_otlp::decode::DecodedFrame;

use super::server::Server;
use super::{Backend, Selection, SumsByLeaf};

const QUERIER: &str = "/querier.v1.QuerierService";
/// Before it leaves out small functions.
const NODES_MAX: u32 = 1 << 20;

/// The addresses at which its parts reach each other.
const MEMBERS: [&str; 9] = [
    "server.http-listen-address",
    "server.grpc-listen-address",
    "memberlist.bind-addr",
    "memberlist.advertise-addr",
    "distributor.ring.instance-addr",
    "overrides-exporter.ring.instance-addr",
    "query-frontend.instance-addr",
    "query-scheduler.ring.instance-addr",
    "segment-writer.lifecycler.addr",
];

#[derive(Debug)]
pub(super) struct Pyroscope(Server);

/// A whole number, which Protobuf's JSON has as text where it may have 64 bits.
fn whole(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

impl Backend for Pyroscope {
    const PROGRAM: &'static str = "SIDEWINDER_PYROSCOPE";
    const COLUMN: &'static str = "Pyroscope";
    const KEEPS_SPANS: bool = true;

    fn start(program: PathBuf) -> Result<Self> {
        let [port, grpc, members, raft] = collector::free_ports()?;
        let mut command = Command::new(program);
        command.args(MEMBERS.map(|member| format!("-{member}=127.0.0.1")));
        command.args([
            // By default it also has its older storage, and asks that for what it receives first.
            "-architecture.storage=v2",
            "-usage-stats.enabled=false",
            "-self-profiling.disable-push=true",
            &format!("-server.http-listen-port={port}"),
            &format!("-server.grpc-listen-port={grpc}"),
            &format!("-metastore.address=127.0.0.1:{grpc}"),
            &format!("-query-backend.address=127.0.0.1:{grpc}"),
            &format!("-metastore.raft.bind-address=127.0.0.1:{raft}"),
            &format!("-metastore.raft.advertise-address=127.0.0.1:{raft}"),
            &format!("-metastore.raft.server-id=127.0.0.1:{raft}"),
            &format!("-memberlist.bind-port={members}"),
        ]);
        Ok(Self(Server::start(command, port, "/ready")?))
    }

    fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.0.port)
    }

    /// By its function, the innermost of those inlined.
    fn leaf(frame: &DecodedFrame) -> Option<String> {
        let line = frame.lines.first().filter(|line| !line.function.is_empty());
        line.map(|line| line.function.to_string())
    }

    fn merged(&self, kind: &str, selection: Selection<'_>) -> Result<SumsByLeaf> {
        let now_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_millis() as i64;
        let selector = match selection {
            Selection::Service(name) => format!("{{service_name={name:?}}}"),
            Selection::All | Selection::Span(_) => "{}".to_owned(),
        };
        let mut asked = json!({
            "profileTypeID": kind,
            "labelSelector": selector,
            "start": now_ms - 600_000,
            "end": now_ms + 60_000,
            "maxNodes": NODES_MAX,
        });
        let method = match selection {
            Selection::Span(id) => {
                asked["spanSelector"] = json!([id]);
                "SelectMergeSpanProfile"
            }
            Selection::All | Selection::Service(_) => "SelectMergeStacktraces",
        };
        let headers = [("Content-Type", "application/json")];
        let path = format!("{QUERIER}/{method}");
        let answer =
            http::request(self.0.port, "POST", &path, &headers, asked.to_string().as_bytes())?.json()?;
        let graph = &answer["flamegraph"];
        let Some(levels) = graph["levels"].as_array() else { return Ok(SumsByLeaf::new()) };
        let names = graph["names"].as_array().context("no names")?;
        let mut sums = SumsByLeaf::new();
        // Of each bar: its distance from the one before, its value, the part that is its own, and its name.
        for level in levels {
            for bar in level["values"].as_array().context("no values")?.chunks_exact(4) {
                let name = whole(&bar[3]).and_then(|index| names.get(index as usize)?.as_str());
                let own = whole(&bar[2]).context("no value")?;
                *sums.entry(name.context("no name")?.to_owned()).or_default() += own;
            }
        }
        Ok(sums)
    }

    fn unit(kind: &str) -> Option<&str> {
        kind.split(':').nth(2)
    }
}
