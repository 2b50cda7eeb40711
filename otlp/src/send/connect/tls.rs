//! TLS as configured. Files are read again when they change.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sidewinder_config::{ClientIdentity, TlsClient, TlsVersion};
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore, SignatureScheme,
    SupportedProtocolVersion, version,
};
use tracing::{info, warn};

use super::pem::{PemSetting, PemText};
use super::tls_error::{PemProblem, TlsConfigError};

/// Checks that a connection could be made with these settings: reads their files, and changes nothing.
///
/// # Errors
///
/// Why that is not possible.
pub fn check_tls(options: &TlsClient) -> Result<(), TlsConfigError> {
    Tls::load(options.clone(), &[]).map(drop)
}

/// The TLS configuration for one receiver.
pub(in crate::send) struct Tls {
    options: TlsClient,
    /// The protocols to offer to the receiver (ALPN).
    protocols: Vec<Vec<u8>>,
    loaded: Mutex<LoadedTlsConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("options", &self.options).finish_non_exhaustive()
    }
}

struct LoadedTlsConfig {
    pem: PemContents,
    config: Arc<ClientConfig>,
    loaded_at: Instant,
}

/// The contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct PemContents {
    ca: Option<PemText>,
    /// The certificate and its key.
    identity: Option<(PemText, PemText)>,
}

impl Tls {
    /// # Errors
    ///
    /// If a file can't be read, or its content isn't valid.
    pub(in crate::send) fn load(options: TlsClient, protocols: &[&[u8]]) -> Result<Self, TlsConfigError> {
        let protocols: Vec<_> = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let texts = PemContents::read(&options)?;
        let config = Arc::new(client_config(&options, &texts, &protocols)?);
        Ok(Self {
            options,
            protocols,
            loaded: Mutex::new(LoadedTlsConfig { pem: texts, config, loaded_at: Instant::now() }),
        })
    }

    pub(super) fn server_name(&self) -> Option<&str> {
        self.options.server_name_override.as_deref()
    }

    /// The configuration for the next connection: with the current content of the files, unless that is invalid, for
    /// example while they are being replaced.
    pub(super) fn client_config(&self) -> Arc<ClientConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if self.options.reload_interval.is_some_and(|interval| loaded.loaded_at.elapsed() < interval) {
            return Arc::clone(&loaded.config);
        }
        match self.reload(&loaded.pem) {
            Ok(None) => loaded.loaded_at = Instant::now(),
            Ok(Some((texts, config))) => {
                info!("certificates have changed");
                *loaded = LoadedTlsConfig { pem: texts, config: Arc::new(config), loaded_at: Instant::now() };
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(error, "can't reload certificates, keeping the previous ones");
            }
        }
        Arc::clone(&loaded.config)
    }

    fn reload(&self, before: &PemContents) -> Result<Option<(PemContents, ClientConfig)>, TlsConfigError> {
        let texts = PemContents::read(&self.options)?;
        if texts == *before {
            return Ok(None);
        }
        let config = client_config(&self.options, &texts, &self.protocols)?;
        Ok(Some((texts, config)))
    }
}

impl PemContents {
    fn read(options: &TlsClient) -> Result<Self, TlsConfigError> {
        let ca = options.ca.as_ref().map(|ca| PemText::read(PemSetting::Authority, ca)).transpose()?;
        let identity = match &options.identity {
            Some(ClientIdentity { certificate, key }) => Some((
                PemText::read(PemSetting::Certificate, certificate)?,
                PemText::read(PemSetting::Key, key)?,
            )),
            None => None,
        };
        Ok(Self { ca, identity })
    }
}

fn client_config(
    options: &TlsClient,
    texts: &PemContents,
    protocols: &[Vec<u8>],
) -> Result<ClientConfig, TlsConfigError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(options)?)?;
    let builder = match options.insecure_skip_verify {
        true => builder.dangerous().with_custom_certificate_verifier(Arc::new(SkipVerification(provider))),
        false => builder.with_root_certificates(root_certificates(options, texts)?),
    };
    let mut config = match &texts.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificate.certificates()?, key.private_key()?)
            .map_err(|error| identity_error(certificate, key, error))?,
    };
    config.alpn_protocols = protocols.to_vec();
    Ok(config)
}

fn versions(options: &TlsClient) -> Result<Vec<&'static SupportedProtocolVersion>, TlsConfigError> {
    let allowed = options.min_version..=options.max_version.unwrap_or(TlsVersion::Tls13);
    if allowed.is_empty() {
        return Err(TlsConfigError::Versions);
    }
    let all = [(TlsVersion::Tls12, &version::TLS12), (TlsVersion::Tls13, &version::TLS13)];
    Ok(all.into_iter().filter(|(version, _)| allowed.contains(version)).map(|(_, known)| known).collect())
}

fn root_certificates(options: &TlsClient, texts: &PemContents) -> Result<RootCertStore, TlsConfigError> {
    let mut authorities = RootCertStore::empty();
    if let Some(ca) = &texts.ca {
        for certificate in ca.certificates()? {
            authorities.add(certificate).map_err(|_| ca.problem(PemProblem::Unusable))?;
        }
    }
    if texts.ca.is_none() || options.include_system_ca_certs_pool {
        let system = rustls_native_certs::load_native_certs();
        for error in system.errors {
            warn!(
                error = &error as &dyn std::error::Error,
                "some of the system's certificates cannot be read"
            );
        }
        // Some systems have certificates in unsupported formats that nothing uses.
        authorities.add_parsable_certificates(system.certs);
    }
    if authorities.is_empty() {
        return Err(TlsConfigError::NoAuthority);
    }
    Ok(authorities)
}

/// Why a certificate and a private key can't be used together.
fn identity_error(certificate: &PemText, key: &PemText, error: RustlsError) -> TlsConfigError {
    match error {
        RustlsError::InconsistentKeys(_) => {
            TlsConfigError::OtherKey { key: key.key, certificate_key: certificate.key }
        }
        RustlsError::InvalidCertificate(_) => certificate.problem(PemProblem::Unusable),
        // Of a type that the provider doesn't have.
        RustlsError::General(_) => key.problem(PemProblem::Unusable),
        other => TlsConfigError::Settings(other),
    }
}

/// `insecure_skip_verify`: any certificate is accepted, but the receiver must have its private key.
#[derive(Debug)]
struct SkipVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for SkipVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
