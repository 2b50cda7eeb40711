//! Extensions: what helps exporters, and what shows the inside.

use std::path::PathBuf;

use super::{ListenAddress, Secret};

/// One extension, by its type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extension {
    /// `file_storage`: keeps queues on disk.
    FileStorage(FileStorage),
    /// `bearertokenauth`: adds a token to each request.
    BearerTokenAuth(BearerTokenAuth),
    /// `basicauth`: adds a user's name and password to each request.
    BasicAuth(BasicAuth),
    /// `health_check`: says over HTTP whether profiles are taken and sent.
    HealthCheck(HealthCheck),
    /// `zpages`: shows the pipelines and the state of all events, over HTTP.
    Zpages(Zpages),
}

/// What an exporter may ask an extension for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtensionService {
    /// Keeping a queue: `sending_queue::storage`.
    Storage,
    /// Credentials: `auth::authenticator`.
    Authenticator,
}

impl Extension {
    /// Whether the extension offers `service`.
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
    /// The folder.
    pub directory: PathBuf,
    /// Bytes that each queue's file may take, kept before each write; `None`: as many as the queue has.
    pub max_size: Option<u64>,
    /// Whether each write is forced to the disk.
    pub fsync: bool,
    /// Whether the folder is created where it is absent.
    pub create_directory: bool,
    /// Permissions of a folder that is created.
    pub directory_permissions: FileMode,
}

impl Default for FileStorage {
    /// The Collector's folder.
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
    /// Takes bits of `rwxrwxrwx`; `None` for any other.
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
    /// The header that carries it.
    pub header: String,
    /// The word before it; may be empty.
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

/// Adds a user's name and password to each request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BasicAuth {
    /// The name.
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

/// Where something secret comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Credential {
    /// A file, read again when it changes; white space at its end does not count.
    File(PathBuf),
    /// The text itself.
    Text(Secret),
}

/// Says over HTTP whether profiles are taken and sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthCheck {
    /// Where to listen.
    pub endpoint: ListenAddress,
    /// The path that answers.
    pub path: String,
    /// What is answered instead of a JSON object.
    pub response_body: Option<ResponseBody>,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { endpoint: ListenAddress::localhost(13_133), path: "/".to_owned(), response_body: None }
    }
}

/// Texts that are answered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResponseBody {
    /// Where all is well.
    pub healthy: String,
    /// Where it is not.
    pub unhealthy: String,
}

/// Shows the pipelines and the state of all events, over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zpages {
    /// Where to listen.
    pub endpoint: ListenAddress,
}

impl Default for Zpages {
    fn default() -> Self {
        Self { endpoint: ListenAddress::localhost(55_679) }
    }
}
