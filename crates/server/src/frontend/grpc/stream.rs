//! `ModelStreamInfer`: many requests in flight on one stream, each answered when it is ready.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use fermata_protocol::proto::infer_parameter::ParameterChoice;
use fermata_protocol::proto::{
    InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse,
};
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::infer::{Meta, infer};
use crate::frontend::Frontend;

/// The responses of a stream. Dropping it cancels what is in flight.
pub(crate) struct Responses {
    frontend: Arc<Frontend>,
    requests: Option<Streaming<ModelInferRequest>>,
    in_flight: JoinSet<ModelStreamInferResponse>,
    /// Of the stream as a whole.
    meta: Meta,
}

impl Responses {
    /// A stream reads no further while so many of its requests are in flight.
    const IN_FLIGHT_MAX: usize = 4096;

    pub(super) fn new(
        frontend: Arc<Frontend>,
        requests: Streaming<ModelInferRequest>,
        meta: Meta,
    ) -> Self {
        Self { frontend, requests: Some(requests), in_flight: JoinSet::new(), meta }
    }

    /// Starts what has come. An error ends the stream.
    fn accept(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        while self.in_flight.len() < Self::IN_FLIGHT_MAX {
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match Pin::new(requests).poll_next(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(request)) => {
                    let frontend = self.frontend.clone();
                    self.in_flight.spawn(answer(frontend, request?, self.meta.clone()));
                }
            }
        }
        Ok(())
    }
}

impl Stream for Responses {
    type Item = Result<ModelStreamInferResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(status) = self.accept(context) {
            self.requests = None;
            return Poll::Ready(Some(Err(status)));
        }
        match self.in_flight.poll_join_next(context) {
            Poll::Ready(Some(Ok(response))) => Poll::Ready(Some(Ok(response))),
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(Status::internal(error.to_string()))))
            }
            Poll::Ready(None) if self.requests.is_none() => Poll::Ready(None),
            // The next request wakes this, or the next answer.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

async fn answer(
    frontend: Arc<Frontend>,
    request: ModelInferRequest,
    stream: Meta,
) -> ModelStreamInferResponse {
    // The client's patience began with the stream; a deadline counts for each request.
    let arrival = Instant::now();
    let since = arrival.duration_since(stream.arrival);
    let patience = stream.patience.map(|patience| patience.saturating_sub(since));
    let meta = Meta { arrival, patience, ..stream };
    let (id, name) = (request.id.clone(), request.model_name.clone());
    match infer(&frontend, request, meta).await {
        Ok(mut response) => {
            let last = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
            response.parameters.insert("triton_final_response".to_owned(), last);
            ModelStreamInferResponse {
                error_message: String::new(),
                infer_response: Some(response),
            }
        }
        Err(error) => ModelStreamInferResponse {
            error_message: error.to_string(),
            infer_response: Some(ModelInferResponse { id, model_name: name, ..Default::default() }),
        },
    }
}
