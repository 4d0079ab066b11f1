//! stub
use std::sync::Arc;
pub mod status;
pub const SERVER_VERSION: &str = "";
pub trait LogControl: Send + Sync { fn set_level(&self, level: tracing::level_filters::LevelFilter) -> Result<(), String>; }
pub struct Frontend;
pub struct Limits { pub request_bytes: usize }
impl Frontend { pub fn new(_: Arc<crate::service::Service>, _: Limits, _: Box<dyn LogControl>) -> Self { Self } }
pub mod http { pub async fn serve(_: tokio::net::TcpListener, _: std::sync::Arc<super::Frontend>, _: axum::Router, _: impl Future<Output=()>) {} }
pub mod grpc { pub async fn serve(_: tokio::net::TcpListener, _: std::sync::Arc<super::Frontend>, _: impl Future<Output=()>) {} }
