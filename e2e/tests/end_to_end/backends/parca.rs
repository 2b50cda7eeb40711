//! Parca, which keeps what it receives in memory.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use sidewinder_e2e_support::{collector, http};
use sidewinder_otlp::decode::DecodedFrame;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use super::server::Server;
use super::{Backend, Selection, SumsByLeaf};

const ANY: &str = "any";

#[derive(Debug)]
pub(super) struct Parca(Server);

/// Text as a part of a URL's query.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

impl Backend for Parca {
    const PROGRAM: &'static str = "SIDEWINDER_PARCA";
    const COLUMN: &'static str = "Parca";
    const KEEPS_SPANS: bool = false;

    fn start(program: PathBuf) -> Result<Self> {
        let [port] = collector::free_ports()?;
        let configuration = tempfile::NamedTempFile::new()?;
        std::fs::write(
            &configuration,
            "object_storage: { bucket: { type: FILESYSTEM, config: { directory: ./data } } }\n",
        )?;
        let mut command = Command::new(program);
        command.arg(format!("--http-address=127.0.0.1:{port}"));
        // It asks no server for what it doesn't have.
        command.arg("--debuginfod-upstream-servers=http://127.0.0.1:1");
        command.arg("--config-path").arg(configuration.path());
        Ok(Self(Server::start(command, port, "/api/profiles/types")?))
    }

    fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.0.port)
    }

    /// All alike: it gives frames the functions of others, and no address (`docs/backends.md`).
    fn leaf(_: &DecodedFrame) -> Option<String> {
        Some(ANY.to_owned())
    }

    fn merged(&self, kind: &str, selection: Selection<'_>) -> Result<SumsByLeaf> {
        let selector = match selection {
            Selection::Service(name) => format!("{{service_name={name:?}}}"),
            Selection::All => "{}".to_owned(),
            Selection::Span(_) => bail!("it keeps no spans"),
        };
        let now = OffsetDateTime::now_utc();
        let time = |time: OffsetDateTime| anyhow::Ok(escaped(&time.format(&Rfc3339)?));
        let path = format!(
            "/api/profiles/query?mode=MODE_MERGE&report_type=REPORT_TYPE_PPROF\
             &merge.query={}&merge.start={}&merge.end={}",
            escaped(&format!("{kind}{selector}")),
            time(now - Duration::minutes(10))?,
            time(now + Duration::minutes(1))?
        );
        let answer = http::get(self.0.port, &path)?;
        if answer.status == 404 {
            return Ok(SumsByLeaf::new());
        }
        let encoded = answer.json()?["pprof"].take();
        let bytes = BASE64_STANDARD.decode(encoded.as_str().context("no pprof")?)?;
        let profile = sidewinder_render::read("merged", &*bytes, None, &mut sidewinder_render::NoNames)?;
        let sum = i64::try_from(profile.samples.iter().map(|sample| sample.count).sum::<u64>())?;
        Ok(SumsByLeaf::from([(ANY.to_owned(), sum)]))
    }

    /// That of the period, if there is one: it multiplies values by that.
    fn unit(kind: &str) -> Option<&str> {
        kind.split(':').nth(4).filter(|unit| !unit.is_empty())
    }
}
