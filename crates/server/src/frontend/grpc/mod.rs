//! gRPC.

mod infer;
mod protocol;
mod status;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use self::protocol::Protocol;
use super::Frontend;
use crate::proto::grpc_inference_service_server::GrpcInferenceServiceServer;

/// The protocol as a service that a `tonic` server can be given.
pub fn service(frontend: Arc<Frontend>) -> Inference {
    let plain = GrpcInferenceServiceServer::new(Protocol::new(frontend.clone()))
        .max_decoding_message_size(frontend.limits.request_bytes)
        .max_encoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate);
    let compressing = plain
        .clone()
        .send_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Deflate);
    Inference { plain, compressing }
}

/// Serves until `shutdown` is ready; then takes no more connections, and returns when the requests that were
/// begun have been answered. An open `ModelStreamInfer` is such a request until its client ends it.
pub async fn serve(
    listener: TcpListener,
    frontend: Arc<Frontend>,
    shutdown: impl Future<Output = ()>,
) {
    // The default windows hold back tensors of a megabyte for several round trips.
    const STREAM_WINDOW: u32 = 4 << 20;
    const CONNECTION_WINDOW: u32 = 16 << 20;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .add_service(service(frontend))
        .serve_with_incoming_shutdown(incoming, shutdown)
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "gRPC is no longer served");
    }
}

/// The protocol's service. It compresses what it sends to those who compress what they send: every gRPC client
/// says that it accepts compression, so that alone does not mean that it wants to pay for it.
#[derive(Clone, Debug)]
pub struct Inference {
    plain: GrpcInferenceServiceServer<Protocol>,
    compressing: GrpcInferenceServiceServer<Protocol>,
}

impl NamedService for Inference {
    const NAME: &'static str = GrpcInferenceServiceServer::<Protocol>::NAME;
}

impl Service<http::Request<Body>> for Inference {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let encoding = request.headers().get("grpc-encoding");
        if encoding.is_none_or(|encoding| encoding == "identity") {
            self.plain.call(request)
        } else {
            self.compressing.call(request)
        }
    }
}
