//! gRPC.

mod infer;
mod protocol;
mod status;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fermata_protocol::proto::grpc_inference_service_server::GrpcInferenceServiceServer;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::{BoxFuture, Service, http};

use self::protocol::Protocol;
use super::Frontend;

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
    // Not tonic's own server, whose router and layers box every request three times over for one service.
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let inference = service(frontend);
    let connections = GracefulShutdown::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many files, mostly: connections that end make room.
                tracing::error!(%error, "a gRPC connection cannot be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection waits before it sends");
        }
        let inference = inference.clone();
        let service = service_fn(move |request: http::Request<Incoming>| {
            inference.clone().call(request.map(Body::new))
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a gRPC connection ended");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// The protocol's service. It compresses what it sends to those who compress what they send: every gRPC client
/// says that it accepts compression, so that alone does not mean that it wants to pay for it.
#[derive(Clone, Debug)]
pub struct Inference {
    plain: GrpcInferenceServiceServer<Protocol>,
    compressing: GrpcInferenceServiceServer<Protocol>,
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
