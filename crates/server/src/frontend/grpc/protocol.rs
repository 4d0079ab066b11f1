//! The calls of the protocol's service.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use fermata_protocol::proto::grpc_inference_service_server::GrpcInferenceService;
use fermata_protocol::proto::model_repository_parameter::ParameterChoice;
use fermata_protocol::proto::*;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};

use super::infer::{Meta, infer};
use super::status::status;
use super::stream::Responses;
use crate::frontend::describe::{LoadParameter, load_parameter};
use crate::frontend::settings::{Log, LogValue, TraceValues};
use crate::frontend::shared_memory::no_cuda;
use crate::frontend::{Frontend, deadline};
use crate::inference::InferError;
use crate::kinds;
use crate::service::LoadOverride;

/// The protocol's service.
pub(crate) struct Protocol {
    frontend: Arc<Frontend>,
}

impl Protocol {
    pub(super) fn new(frontend: Arc<Frontend>) -> Self {
        Self { frontend }
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protocol").finish_non_exhaustive()
    }
}

/// What a call's metadata say of its time.
fn meta(metadata: &MetadataMap) -> Result<Meta, Status> {
    let arrival = Instant::now();
    let patience =
        metadata.get("grpc-timeout").and_then(|value| deadline::from_grpc(value.as_bytes()));
    let own = metadata.get(deadline::HEADER).map(|value| deadline::from_header(value.as_bytes()));
    let timeout = own.transpose().map_err(Status::invalid_argument)?;
    let application = metadata.get(kinds::HEADER).cloned();
    Ok(Meta { arrival, patience, timeout, application })
}

#[tonic::async_trait]
impl GrpcInferenceService for Protocol {
    type ModelStreamInferStream = Responses;

    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse { ready: self.frontend.service.is_ready() }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = match self.frontend.service.model(&name, &version) {
            Ok(_) => true,
            // As in Triton, a model that is not there is not ready, which is no error.
            Err(InferError::Unknown(_) | InferError::Unavailable(_)) => false,
            Err(error) => return Err(status(error)),
        };
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        Ok(Response::new(self.frontend.server_metadata()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.into_inner();
        self.frontend.model_metadata(&name, &version).map(Response::new).map_err(status)
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let meta = meta(request.metadata())?;
        let response = infer(&self.frontend, request.into_inner(), meta).await;
        response.map(Response::new).map_err(status)
    }

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let meta = meta(request.metadata())?;
        let requests = request.into_inner();
        Ok(Response::new(Responses::new(self.frontend.clone(), requests, meta)))
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Result<Response<ModelConfigResponse>, Status> {
        let ModelConfigRequest { name, version } = request.into_inner();
        let model = self.frontend.service.model(&name, &version).map_err(status)?;
        Ok(Response::new(ModelConfigResponse { config: Some(model.config.clone()) }))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Result<Response<ModelStatisticsResponse>, Status> {
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let model_stats = self.frontend.service.statistics(&name, &version).map_err(status)?;
        Ok(Response::new(ModelStatisticsResponse { model_stats }))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Result<Response<RepositoryIndexResponse>, Status> {
        let models = self.frontend.repository_index(request.into_inner().ready);
        Ok(Response::new(RepositoryIndexResponse { models }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Result<Response<RepositoryModelLoadResponse>, Status> {
        let RepositoryModelLoadRequest { model_name, parameters, .. } = request.into_inner();
        let mut files = LoadOverride::default();
        for (key, value) in parameters {
            let value = match value.parameter_choice {
                Some(ParameterChoice::BytesParam(content)) => LoadParameter::File(content),
                Some(ParameterChoice::StringParam(text)) => LoadParameter::Text(text),
                Some(ParameterChoice::BoolParam(_) | ParameterChoice::Int64Param(_)) | None => {
                    LoadParameter::Other
                }
            };
            load_parameter(&mut files, &key, value).map_err(status)?;
        }
        self.frontend.service.load(&model_name, files).await.map_err(status)?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Result<Response<RepositoryModelUnloadResponse>, Status> {
        let RepositoryModelUnloadRequest { model_name, .. } = request.into_inner();
        self.frontend.service.unload(&model_name).await.map_err(status)?;
        Ok(Response::new(RepositoryModelUnloadResponse {}))
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<SystemSharedMemoryStatusRequest>,
    ) -> Result<Response<SystemSharedMemoryStatusResponse>, Status> {
        use system_shared_memory_status_response::RegionStatus;
        let regions = self.frontend.regions.status(&request.into_inner().name);
        let regions = regions.map_err(Status::not_found)?.into_iter().map(|(name, region)| {
            let status = RegionStatus {
                name: name.clone(),
                key: region.key.clone(),
                offset: region.offset,
                byte_size: region.byte_size,
            };
            (name, status)
        });
        Ok(Response::new(SystemSharedMemoryStatusResponse { regions: regions.collect() }))
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<SystemSharedMemoryRegisterRequest>,
    ) -> Result<Response<SystemSharedMemoryRegisterResponse>, Status> {
        let SystemSharedMemoryRegisterRequest { name, key, offset, byte_size } =
            request.into_inner();
        let registered = self.frontend.regions.register(&name, &key, offset, byte_size);
        registered.map_err(Status::invalid_argument)?;
        Ok(Response::new(SystemSharedMemoryRegisterResponse {}))
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<SystemSharedMemoryUnregisterRequest>,
    ) -> Result<Response<SystemSharedMemoryUnregisterResponse>, Status> {
        self.frontend.regions.unregister(&request.into_inner().name);
        Ok(Response::new(SystemSharedMemoryUnregisterResponse {}))
    }

    async fn cuda_shared_memory_status(
        &self,
        request: Request<CudaSharedMemoryStatusRequest>,
    ) -> Result<Response<CudaSharedMemoryStatusResponse>, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Ok(Response::new(CudaSharedMemoryStatusResponse::default()));
        }
        Err(Status::not_found(format!("CUDA shared memory region '{name}' is not registered")))
    }

    async fn cuda_shared_memory_register(
        &self,
        request: Request<CudaSharedMemoryRegisterRequest>,
    ) -> Result<Response<CudaSharedMemoryRegisterResponse>, Status> {
        Err(status(no_cuda(&request.into_inner().name)))
    }

    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<CudaSharedMemoryUnregisterRequest>,
    ) -> Result<Response<CudaSharedMemoryUnregisterResponse>, Status> {
        Ok(Response::new(CudaSharedMemoryUnregisterResponse {}))
    }

    async fn trace_setting(
        &self,
        request: Request<TraceSettingRequest>,
    ) -> Result<Response<TraceSettingResponse>, Status> {
        let TraceSettingRequest { settings, model_name } = request.into_inner();
        if !model_name.is_empty() {
            self.frontend.service.model(&model_name, "").map_err(status)?;
        }
        let changes = settings.into_iter().map(|(key, value)| (key, value.value));
        let values = self.frontend.settings.change_trace(&model_name, changes);
        Ok(Response::new(trace_response(values.map_err(status)?)))
    }

    async fn log_settings(
        &self,
        request: Request<LogSettingsRequest>,
    ) -> Result<Response<LogSettingsResponse>, Status> {
        use log_settings_request::setting_value::ParameterChoice;
        let changes = request.into_inner().settings.into_iter().filter_map(|(key, value)| {
            let value = match value.parameter_choice? {
                ParameterChoice::BoolParam(on) => LogValue::Bool(on),
                ParameterChoice::StringParam(text) => LogValue::Text(text),
                ParameterChoice::Uint32Param(number) => LogValue::Number(number),
            };
            Some((key, value))
        });
        let log = self.frontend.settings.change_log(changes).map_err(status)?;
        Ok(Response::new(log_response(log)))
    }
}

fn trace_response(values: TraceValues) -> TraceSettingResponse {
    use trace_setting_response::SettingValue;
    let settings = values.into_iter().map(|(key, value)| (key, SettingValue { value }));
    TraceSettingResponse { settings: settings.collect() }
}

fn log_response(log: Log) -> LogSettingsResponse {
    use log_settings_response::SettingValue;
    use log_settings_response::setting_value::ParameterChoice;
    let settings = [
        ("log_file", ParameterChoice::StringParam(String::new())),
        ("log_info", ParameterChoice::BoolParam(log.info)),
        ("log_warning", ParameterChoice::BoolParam(log.warning)),
        ("log_error", ParameterChoice::BoolParam(log.error)),
        ("log_verbose_level", ParameterChoice::Uint32Param(log.verbose_level)),
        ("log_format", ParameterChoice::StringParam(log.format)),
    ];
    let settings = settings
        .map(|(key, choice)| (key.to_owned(), SettingValue { parameter_choice: Some(choice) }));
    LogSettingsResponse { settings: settings.into() }
}
