//! How a Collector is set up, as a test says and as its configuration does.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// Where processors are that bring much with them, as Kubernetes' client: each is built in where it is asked for.
const PROCESSORS: &str = "github.com/open-telemetry/opentelemetry-collector-contrib/processor/";

/// The file exporter's tests need it, so the builder wants it, but its newer releases can't be fetched everywhere.
/// No code of it is in the Collector.
const REPLACED: &str =
    "github.com/open-telemetry/opentelemetry-collector-contrib/extension/encoding/otlpencodingextension";

/// Names the version that tests run against unless they say which: a variable of the environment.
const VARIABLE: &str = "SIDEWINDER_COLLECTOR";

/// A version of the Collector that is built here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// The oldest that is tested.
    Oldest,
    /// Like the oldest, it leaves the profiles development version unchecked and sends the keys of resources in full.
    Between,
    /// The newest that can be built here. It checks that version, and replaces keys by indices into the string table.
    Newest,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::Oldest, Self::Between, Self::Newest];

    /// The version that tests run against unless they say which: `$SIDEWINDER_COLLECTOR`, else the oldest.
    ///
    /// # Panics
    /// When the variable names another version.
    #[must_use]
    #[expect(
        clippy::panic,
        reason = "a test must not go on with another version than the one that was asked for"
    )]
    pub fn of_run() -> Self {
        let Ok(name) = env::var(VARIABLE) else { return Self::Oldest };
        let found = Self::ALL.into_iter().find(|version| version.as_str() == name);
        found.unwrap_or_else(|| panic!("{VARIABLE}={name} is none of {:?}", Self::ALL.map(Self::as_str)))
    }

    /// That of the Collector and of its builder.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oldest => "0.159.0",
            Self::Between => "0.161.0",
            Self::Newest => "0.165.0",
        }
    }

    /// That of the modules that are stable, by the Collector's own table of releases.
    const fn of_stable_modules(self) -> &'static str {
        match self {
            Self::Oldest => "1.65.0",
            Self::Between => "1.67.0",
            Self::Newest => "1.71.0",
        }
    }

    /// The manifest, which is written for the oldest.
    pub(super) fn manifest(self, oldest: &str) -> String {
        oldest
            .replace(Self::Oldest.as_str(), self.as_str())
            .replace(Self::Oldest.of_stable_modules(), self.of_stable_modules())
            + &match self {
                Self::Oldest | Self::Between => String::new(),
                Self::Newest => {
                    format!("\nreplaces:\n  - {REPLACED} => {REPLACED} v{}\n", Self::Oldest.as_str())
                }
            }
    }
}

/// What a Collector shows who connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTls {
    /// Its certificate.
    pub cert_file: PathBuf,
    /// The key to that.
    pub key_file: PathBuf,
    /// The authority of whoever may connect; `None`: anybody may.
    pub client_ca_file: Option<PathBuf>,
}

/// How a Collector is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Which one.
    pub version: Version,
    /// Its ports for gRPC and HTTP on the loopback interface; any that are free where absent.
    pub ports: Option<[u16; 2]>,
    /// Whether gRPC is a Unix socket instead.
    pub unix_socket: bool,
    /// TLS of both.
    pub tls: Option<ServerTls>,
    /// The largest request that it takes, gRPC's in whole MiB.
    pub max_request_mib: Option<u32>,
    /// The port of its own metrics, which tell of two more exporters that fail; none where absent.
    pub metrics_port: Option<u16>,
    /// Where it sends on to, besides.
    pub next: Option<String>,
    /// What it asks an API server; nothing where absent.
    pub kubernetes: Option<KubernetesSetup>,
    /// A whole configuration in place of one of ours.
    pub documented: Option<Documented>,
}

impl Setup {
    /// The manifest of what it is built of, from that of the others.
    pub(super) fn manifest(&self, oldest: &str) -> String {
        let version = Version::Oldest.as_str();
        let mut processors = "processors:\n".to_owned();
        let wanted = [
            ("k8sattributesprocessor", self.kubernetes.is_some()),
            ("transformprocessor", self.documented.is_some()),
        ];
        for (processor, _) in wanted.iter().filter(|(_, is_wanted)| *is_wanted) {
            processors += &format!("  - gomod: {PROCESSORS}{processor} v{version}\n");
        }
        self.version.manifest(&oldest.replacen("processors:\n", &processors, 1))
    }
}

/// A configuration as the documentation has it, word for word. All of its exporters send to one receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Documented {
    /// The YAML.
    pub text: String,
    /// Where that receiver is, for gRPC.
    pub grpc: String,
    /// And for HTTP.
    pub http: String,
}

impl Documented {
    /// What is said on top of it: nothing but where things are.
    fn places(&self, grpc_port: u16, http_port: u16) -> Result<String> {
        let configuration: Value =
            serde_yaml::from_str(&self.text).context("the documented configuration")?;
        let exporters = configuration["exporters"].as_object().context("it has no exporters")?;
        let endpoint = |id: &str| if id.starts_with("otlp_http") { &self.http } else { &self.grpc };
        let exporters: Map<String, Value> =
            exporters.keys().map(|id| (id.clone(), json!({ "endpoint": endpoint(id) }))).collect();
        let protocols = json!({
            "grpc": { "endpoint": format!("127.0.0.1:{grpc_port}") },
            "http": { "endpoint": format!("127.0.0.1:{http_port}") },
        });
        let places = json!({
            "receivers": { "otlp": { "protocols": protocols } },
            "exporters": exporters,
            "service": { "telemetry": { "metrics": { "level": "none" } } },
        });
        Ok(places.to_string())
    }
}

/// A processor `k8s_attributes` in the pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubernetesSetup {
    /// Its configuration.
    pub attributes: Value,
    /// Where the API server is, and as whom it is asked.
    pub kubeconfig: PathBuf,
}

/// Metrics as a Collector has them by default, where Prometheus reads them on the loopback interface.
fn metrics_reader(port: u16) -> String {
    let names = "without_scope_info: true, without_type_suffix: true, without_units: true";
    let prometheus = format!("prometheus: {{ host: 127.0.0.1, port: {port}, {names} }}");
    format!("{{ readers: [{{ pull: {{ exporter: {{ {prometheus} }} }} }}] }}")
}

/// Exporters for metrics to tell of: one whose requests fail, and one whose queue is soon full. Each with its id, where it sends to,
/// and more keys.
const FAILING_EXPORTERS: [(&str, &str, &str); 2] = [
    ("otlp_grpc/fails", "127.0.0.1:1", "retry_on_failure: { enabled: false }"),
    ("otlp_grpc/full", "127.0.0.1:1", "sending_queue: { queue_size: 1, num_consumers: 1 }"),
];

impl Default for Setup {
    fn default() -> Self {
        Self {
            version: Version::of_run(),
            ports: None,
            unix_socket: false,
            tls: None,
            max_request_mib: None,
            metrics_port: None,
            next: None,
            kubernetes: None,
            documented: None,
        }
    }
}

/// Where gRPC is received if not on a port.
pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join("otlp.sock")
}

/// Writes the configuration: files of which each adds to those before it.
pub(super) fn write_configuration(
    folder: &Path,
    setup: &Setup,
    grpc_port: u16,
    http_port: u16,
) -> Result<Vec<PathBuf>> {
    let write = |name: &str, text: &str| -> Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    match &setup.documented {
        Some(documented) => Ok(vec![
            write("documented.yaml", &documented.text)?,
            write("places.yaml", &documented.places(grpc_port, http_port)?)?,
        ]),
        None => Ok(vec![write("collector.yaml", &configuration(folder, setup, grpc_port, http_port))?]),
    }
}

/// The configuration of a Collector that writes what it gets to files.
fn configuration(folder: &Path, setup: &Setup, grpc_port: u16, http_port: u16) -> String {
    let tls = setup.tls.as_ref().map_or_else(String::new, |tls| {
        let client = tls.client_ca_file.as_ref().map_or_else(String::new, |path| {
            format!(", client_ca_file: {}, client_ca_file_reload: true", path.display())
        });
        let (cert, key) = (tls.cert_file.display(), tls.key_file.display());
        format!(", tls: {{ cert_file: {cert}, key_file: {key}, reload_interval: 100ms{client} }}")
    });
    let grpc_limit =
        setup.max_request_mib.map_or_else(String::new, |mib| format!(", max_recv_msg_size_mib: {mib}"));
    let http_limit = setup
        .max_request_mib
        .map_or_else(String::new, |mib| format!(", max_request_body_size: {}", mib << 20));
    let grpc = match setup.unix_socket {
        true => format!("{}, transport: unix", socket(folder).display()),
        false => format!("127.0.0.1:{grpc_port}{tls}"),
    };
    let failing = setup.metrics_port.iter().flat_map(|_| FAILING_EXPORTERS);
    let next = setup.next.iter().map(|to| ("otlp_grpc/next", to.as_str(), ""));
    let more: Vec<_> = failing.chain(next).collect();
    let exporters: String = more
        .iter()
        .map(|(id, to, keys)| format!("  {id}: {{ endpoint: '{to}', tls: {{ insecure: true }}, {keys} }}\n"))
        .collect();
    let ids: String = more.iter().map(|(id, ..)| format!(", {id}")).collect();
    let metrics = setup.metrics_port.map_or_else(|| "{ level: none }".to_owned(), metrics_reader);
    let (processors, used) = match &setup.kubernetes {
        Some(kubernetes) => {
            (format!("processors: {{ k8s_attributes: {} }}\n", kubernetes.attributes), "k8s_attributes")
        }
        None => (String::new(), ""),
    };
    // With rotation the file is written without a buffer: what was answered is there, whatever comes.
    format!(
        "receivers:
  otlp:
    protocols:
      grpc: {{ endpoint: {grpc}{grpc_limit} }}
      http: {{ endpoint: 127.0.0.1:{http_port}{tls}{http_limit} }}
exporters:
  file: {{ path: {folder}/profiles.binpb, format: proto, rotation: {{ max_megabytes: 1000 }} }}
  file/traces: {{ path: {folder}/traces.json, rotation: {{ max_megabytes: 1000 }} }}
  debug: {{ verbosity: basic }}
{exporters}{processors}service:
  telemetry:
    metrics: {metrics}
  pipelines:
    profiles: {{ receivers: [otlp], processors: [{used}], exporters: [file, debug{ids}] }}
    traces: {{ receivers: [otlp], processors: [{used}], exporters: [file/traces] }}
",
        folder = folder.display()
    )
}
