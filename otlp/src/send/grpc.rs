//! OTLP over gRPC.

mod codec;
mod endpoint;
mod exchange;
mod options;
mod outcome;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use sidewinder_config::Compression;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};

use super::MAX_RESPONSE_BYTES;
use super::connect::Connector;
use super::credentials::RequestHeaders;
use super::delivery::Transport;
use super::error::ConnectionError;
use super::exporter::{Exporter, ExporterError};
use super::options::ExporterOptions;
use super::outcome::{SendOutcome, with_error_chain};
use crate::wire::EXPORT_METHOD;
use codec::ExportCodec;
use exchange::{Exchange, StatusRecorder};
pub use options::GrpcOptions;

/// The time between connection attempts while an attempt waits for a connection.
const RECONNECT: Duration = Duration::from_millis(200);

impl Exporter {
    /// Starts an exporter over gRPC. It connects when there is something to send.
    ///
    /// # Errors
    ///
    /// If the settings are invalid, or a certificate, the credentials or the queue on disk can't be read.
    pub fn grpc(options: ExporterOptions, grpc: &GrpcOptions) -> Result<Self, ExporterError> {
        Self::start(options, || GrpcTransport::new(grpc))
    }
}

struct GrpcTransport {
    endpoint: Endpoint,
    connector: Connector,
    /// Replaced when a request gets no response: the connection may be dead without an error.
    channel: Mutex<Channel>,
    headers: RequestHeaders,
    compression: Compression,
    wait_for_ready: bool,
    /// Zero for no timeout.
    timeout: Duration,
}

impl GrpcTransport {
    fn new(options: &GrpcOptions) -> Result<Self, ConnectionError> {
        let (endpoint, connector) = endpoint::endpoint(options)?;
        if options.credentials.is_some() && connector.tls.is_none() {
            return Err(ConnectionError::CredentialsInPlaintext);
        }
        let headers = RequestHeaders::new(&options.headers, options.credentials.clone())?;
        headers.current()?;
        Ok(Self {
            channel: Mutex::new(endpoint.connect_with_connector_lazy(connector.clone())),
            endpoint,
            connector,
            headers,
            compression: options.compression,
            wait_for_ready: options.wait_for_ready,
            timeout: options.timeout,
        })
    }

    async fn export(&self, message: Bytes, exchange: &Exchange) -> SendOutcome {
        let headers = match self.headers.current() {
            Ok(headers) => headers,
            Err(error) => {
                return SendOutcome::no_response(false, with_error_chain("no credentials", &error));
            }
        };
        self.connector.read_budget.refill();
        let mut client = self.client();
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = MetadataMap::from_headers(headers);
        request.extensions_mut().insert(exchange.clone());
        if let Err(error) = client.ready().await {
            return outcome::from_error(&Status::from_error(error.into()), exchange);
        }
        let path = PathAndQuery::from_static(EXPORT_METHOD);
        match client.unary(request, path, ExportCodec(exchange.clone())).await {
            Ok(response) => SendOutcome::from_response(response.into_inner()),
            Err(status) => outcome::from_error(&status, exchange),
        }
    }

    /// Like [`Self::export`], but keeps retrying a failed connection.
    async fn export_when_ready(&self, message: Bytes, exchange: &Exchange) -> SendOutcome {
        loop {
            let verdict = self.export(message.clone(), exchange).await;
            let is_unconnected = matches!(verdict, SendOutcome::Retry { answered: false, .. });
            if !self.wait_for_ready || !is_unconnected || exchange.has_started() {
                return verdict;
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    fn client(&self) -> tonic::client::Grpc<StatusRecorder<Channel>> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let client = tonic::client::Grpc::new(StatusRecorder(channel))
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
            // Servers respond with the encoding of the request.
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd);
        match self.compression {
            Compression::None => client,
            Compression::Gzip => client.send_compressed(CompressionEncoding::Gzip),
            Compression::Zstd => client.send_compressed(CompressionEncoding::Zstd),
        }
    }

    /// Makes the next request use a new connection.
    fn reconnect(&self) {
        let fresh = self.endpoint.connect_with_connector_lazy(self.connector.clone());
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
    }
}

impl Transport for GrpcTransport {
    async fn attempt(&self, message: Bytes) -> SendOutcome {
        let exchange = Exchange::default();
        if self.timeout.is_zero() {
            return self.export_when_ready(message, &exchange).await;
        }
        let answer = tokio::time::timeout(self.timeout, self.export_when_ready(message, &exchange)).await;
        answer.unwrap_or_else(|_| {
            self.reconnect();
            SendOutcome::no_response(exchange.has_started(), format!("no answer within {:?}", self.timeout))
        })
    }
}
