//! Headers of requests: those that the user configured, credentials, and the signal version.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sidewinder_config::{BasicAuth, BearerTokenAuth, Credential, read_bounded};
use tracing::warn;

use crate::wire::{DEVELOPMENT_VERSION, DEVELOPMENT_VERSION_KEY};

/// Our `user-agent`.
pub(super) const USER_AGENT: &str = concat!("sidewinder/", env!("CARGO_PKG_VERSION"));

/// The maximum size of a file with credentials.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// The secret itself; for a file, its current content. `key`: the key of the configuration that names the file.
fn read(key: &'static str, credential: &Credential) -> Result<String, CredentialsError> {
    let path = match credential {
        Credential::Text(text) => return Ok(text.reveal().to_owned()),
        Credential::File(path) => path,
    };
    let failed = |source| CredentialsError::Read { key, path: path.clone(), source };
    let bytes = read_bounded(path, MAX_SECRET_BYTES).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| failed(io::Error::other("it is not text")))?;
    match text.trim_end() {
        "" => Err(failed(io::Error::other("it is empty"))),
        text => Ok(text.to_owned()),
    }
}

/// The credentials that the receiver requires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExporterCredentials {
    /// A bearer token.
    Bearer(BearerTokenAuth),
    /// A user name and password (RFC 7617).
    Basic(BasicAuth),
}

/// Why credentials can't be sent. The message doesn't contain secrets.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file could not be read, or has no credentials.
    #[error("{key}: cannot read the credentials in {path:?}")]
    Read {
        /// The key of the configuration, within the extension.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// They contain characters that aren't valid in a header.
    #[error("the credentials contain characters that are not valid in a header")]
    Unfit,
}

impl ExporterCredentials {
    /// Checks that they could be sent now: reads their files.
    ///
    /// # Errors
    ///
    /// Why that is not possible.
    pub fn check(&self) -> Result<(), CredentialsError> {
        self.header().map(drop)
    }

    fn header(&self) -> Result<(HeaderName, HeaderValue), CredentialsError> {
        let (name, text) = match self {
            Self::Bearer(BearerTokenAuth { header, scheme, token }) => {
                let token = read("filename", token)?;
                let text = if scheme.is_empty() { token } else { format!("{scheme} {token}") };
                (header.parse().map_err(|_| CredentialsError::Unfit)?, text)
            }
            Self::Basic(BasicAuth { username, password }) => {
                let pair = format!(
                    "{}:{}",
                    read("client_auth::username_file", username)?,
                    read("client_auth::password_file", password)?
                );
                (header::AUTHORIZATION, format!("Basic {}", BASE64_STANDARD.encode(pair)))
            }
        };
        let mut value = HeaderValue::try_from(text).map_err(|_| CredentialsError::Unfit)?;
        value.set_sensitive(true);
        Ok((name, value))
    }
}

/// A header whose name or value isn't valid. The message doesn't contain the value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("header {0:?} has a name or a value that cannot be sent")]
pub struct HeaderError(pub String);

/// The headers of each request.
#[derive(Debug)]
pub(super) struct RequestHeaders {
    fixed: HeaderMap,
    credentials: Option<ExporterCredentials>,
    /// The credentials that were last read.
    last_authorization: Mutex<Option<(HeaderName, HeaderValue)>>,
}

impl RequestHeaders {
    pub(super) fn new(
        headers: &[(String, String)],
        credentials: Option<ExporterCredentials>,
    ) -> Result<Self, HeaderError> {
        let mut fixed = HeaderMap::new();
        for (name, value) in headers {
            let unfit = || HeaderError(name.clone());
            let key = HeaderName::try_from(name.as_str()).map_err(|_| unfit())?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| unfit())?;
            value.set_sensitive(true);
            fixed.append(key, value);
        }
        // This takes precedence over the user's headers.
        let version = HeaderValue::from_static(DEVELOPMENT_VERSION);
        fixed.insert(HeaderName::from_static(DEVELOPMENT_VERSION_KEY), version);
        Ok(Self { fixed, credentials, last_authorization: Mutex::default() })
    }

    /// The headers for the next request. If the credentials can't be read now, the previous ones are used.
    ///
    /// # Errors
    ///
    /// If there are no previous ones.
    pub(super) fn current(&self) -> Result<HeaderMap, CredentialsError> {
        let mut headers = self.fixed.clone();
        if let Some(credentials) = &self.credentials {
            let mut last = self.last_authorization.lock().unwrap_or_else(PoisonError::into_inner);
            match (credentials.header(), &mut *last) {
                (Ok(read), last) => *last = Some(read),
                (Err(error), None) => return Err(error),
                (Err(error), Some(_)) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "can't reload credentials, keeping the previous ones");
                }
            }
            if let Some((name, value)) = last.clone() {
                headers.insert(name, value);
            }
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_config::Secret;

    use super::*;

    fn headers(credentials: ExporterCredentials) -> RequestHeaders {
        let user = [("authorization".to_owned(), "other".to_owned())];
        RequestHeaders::new(&user, Some(credentials)).unwrap()
    }

    #[test]
    fn a_name_and_a_password_are_one_text_in_base64() {
        let text = |text: &str| Credential::Text(Secret::new(text.to_owned()));
        // The example of RFC 7617, section 2.
        let basic = ExporterCredentials::Basic(BasicAuth {
            username: text("Aladdin"),
            password: text("open sesame"),
        });
        assert!(!format!("{basic:?}").contains("sesame"));
        assert_eq!(headers(basic).current().unwrap()["authorization"], "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn a_token_is_read_again_and_the_last_one_outlives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "one\n").unwrap();
        let bearer = |header: &str, scheme: &str| {
            ExporterCredentials::Bearer(BearerTokenAuth {
                header: header.to_owned(),
                scheme: scheme.to_owned(),
                token: Credential::File(path.clone()),
            })
        };
        let headers_of_token = headers(bearer("Authorization", "Bearer"));
        assert_eq!(headers_of_token.current().unwrap()["authorization"], "Bearer one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(headers_of_token.current().unwrap()["authorization"], "Bearer two");
        assert_eq!(headers(bearer("x-key", "")).current().unwrap()["x-key"], "two");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(headers_of_token.current().unwrap()["authorization"], "Bearer two");
        assert!(matches!(headers(bearer("x-key", "")).current(), Err(CredentialsError::Read { .. })));
    }
}
