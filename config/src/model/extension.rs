//! Extensions: helpers of exporters, and diagnostics.

use std::path::PathBuf;

use super::{ListenAddress, Secret};

/// One extension, by its type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extension {
    /// `file_storage`: keeps queues on disk.
    FileStorage(FileStorage),
    /// `bearertokenauth`: adds a token to each request.
    BearerTokenAuth(BearerTokenAuth),
    /// `basicauth`: adds a user name and a password to each request.
    BasicAuth(BasicAuth),
    /// `health_check`: reports over HTTP whether profiles are collected and sent.
    HealthCheck(HealthCheck),
    /// `zpages`: shows the pipelines and the state of all events, over HTTP.
    Zpages(Zpages),
}

/// A service that extensions provide to exporters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtensionService {
    /// Storage of a queue: `sending_queue::storage`.
    Storage,
    /// Credentials: `auth::authenticator`.
    Authenticator,
}

impl Extension {
    /// Whether the extension provides `service`.
    #[must_use]
    pub const fn provides(&self, service: ExtensionService) -> bool {
        match self {
            Self::FileStorage(_) => matches!(service, ExtensionService::Storage),
            Self::BearerTokenAuth(_) | Self::BasicAuth(_) => {
                matches!(service, ExtensionService::Authenticator)
            }
            Self::HealthCheck(_) | Self::Zpages(_) => false,
        }
    }
}

/// Keeps queues on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStorage {
    /// The directory.
    pub directory: PathBuf,
    /// The size limit of each queue's file in bytes, checked before each write; `None`: the capacity of the queue.
    pub max_size: Option<u64>,
    /// Whether each write is synced to disk.
    pub fsync: bool,
    /// Whether the directory is created if it does not exist.
    pub create_directory: bool,
    /// The permissions of a directory that is created.
    pub directory_permissions: FileMode,
}

impl Default for FileStorage {
    /// The Collector's directory.
    fn default() -> Self {
        Self {
            directory: "/var/lib/otelcol/file_storage".into(),
            max_size: None,
            fsync: false,
            create_directory: false,
            directory_permissions: FileMode::default(),
        }
    }
}

/// Permission bits, written in octal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileMode(u32);

impl FileMode {
    /// Accepts the bits of `rwxrwxrwx`; `None` for any others.
    #[must_use]
    pub const fn new(bits: u32) -> Option<Self> {
        if bits <= 0o777 { Some(Self(bits)) } else { None }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl Default for FileMode {
    /// `0750`, the Collector's.
    fn default() -> Self {
        Self(0o750)
    }
}

/// Adds a token to each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerTokenAuth {
    /// The name of the header.
    pub header: String,
    /// The prefix of the token; may be empty.
    pub scheme: String,
    /// The token.
    pub token: Credential,
}

impl Default for BearerTokenAuth {
    fn default() -> Self {
        Self {
            header: "Authorization".to_owned(),
            scheme: "Bearer".to_owned(),
            token: Credential::Text(Secret::default()),
        }
    }
}

/// Adds a user name and a password to each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BasicAuth {
    /// The user name.
    pub username: Credential,
    /// The password.
    pub password: Credential,
}

impl Default for BasicAuth {
    fn default() -> Self {
        let nothing = Credential::Text(Secret::default());
        Self { username: nothing.clone(), password: nothing }
    }
}

/// The source of a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credential {
    /// A file, read again when it changes; trailing white space is ignored.
    File(PathBuf),
    /// The text itself.
    Text(Secret),
}

/// Reports over HTTP whether profiles are collected and sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthCheck {
    /// The address to listen on.
    pub endpoint: ListenAddress,
    /// The path of the response.
    pub path: String,
    /// The body of the response, instead of a JSON object.
    pub response_body: Option<ResponseBody>,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { endpoint: ListenAddress::localhost(13_133), path: "/".to_owned(), response_body: None }
    }
}

/// Response bodies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResponseBody {
    /// If everything is healthy.
    pub healthy: String,
    /// If something is not.
    pub unhealthy: String,
}

/// Shows the pipelines and the state of all events, over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zpages {
    /// The address to listen on.
    pub endpoint: ListenAddress,
}

impl Default for Zpages {
    fn default() -> Self {
        Self { endpoint: ListenAddress::localhost(55_679) }
    }
}
