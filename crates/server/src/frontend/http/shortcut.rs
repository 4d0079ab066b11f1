//! Inference goes past the router: it is nearly all that ever comes, and a router that extracts and
//! boxes its way through a path costs as much as the rest of a small request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use tower_service::Service;

use super::infer;
use crate::frontend::Frontend;

/// Takes requests for inference itself, and leaves everything else to the router.
#[derive(Clone)]
pub(super) struct Shortcut {
    pub(super) frontend: Arc<Frontend>,
    pub(super) router: Router,
}

impl Service<Request> for Shortcut {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if request.method() != Method::POST || of_infer(request.uri().path()).is_none() {
            return Box::pin(self.router.call(request));
        }
        let frontend = self.frontend.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let (model, version) = of_infer(parts.uri.path()).unwrap_or_default();
            let answer = infer::infer(&frontend, model, version, &parts.headers, body).await;
            Ok(answer.into_response())
        })
    }
}

/// The model and the version, or none, of a path that asks for inference. What is encoded is left
/// to the router.
fn of_infer(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix("/v2/models/")?.strip_suffix("/infer")?;
    let (model, version) = match path.split_once('/') {
        None => (path, ""),
        Some((model, rest)) => (model, rest.strip_prefix("versions/")?),
    };
    let plain = |part: &str| !part.contains(['/', '%']);
    (!model.is_empty() && plain(model) && plain(version)).then_some((model, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_asks_for_inference_goes_past_the_router() {
        assert_eq!(of_infer("/v2/models/a/infer"), Some(("a", "")));
        assert_eq!(of_infer("/v2/models/a/versions/2/infer"), Some(("a", "2")));
        for other in [
            "/v2/models/a",
            "/v2/models//infer",
            "/v2/models/a%20b/infer",
            "/v2/models/a/b/infer",
            "/v2/models/a/versions/1/2/infer",
        ] {
            assert_eq!(of_infer(other), None, "{other}");
        }
    }
}
