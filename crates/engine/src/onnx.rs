//! ONNX Runtime as an engine on the CPU, and what its other engines share with it.
//!
//! All code that touches memory unknown to Rust is in `value.rs`.

mod buffer;
pub(crate) mod compatible;
pub(crate) mod file;
mod length;
pub(crate) mod library;
pub(crate) mod session;
pub(crate) mod specs;
mod value;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ort::environment::Environment;

use crate::{Engine, EngineError, Model, Session, Signature, Source};

/// Loads ONNX files. A process has one, because the library can be loaded only once.
#[derive(Clone, Debug)]
pub struct OnnxRuntime {
    environment: Environment,
}

impl OnnxRuntime {
    /// Loads the library that `ORT_DYLIB_PATH` names, or else the first `libonnxruntime.so*` in
    /// `folders`. The library stays loaded, and later calls share it.
    pub fn new<P: AsRef<Path>>(folders: impl IntoIterator<Item = P>) -> Result<Self, EngineError> {
        let folders: Vec<PathBuf> =
            folders.into_iter().map(|folder| folder.as_ref().to_owned()).collect();
        Ok(Self { environment: library::environment(&folders)? })
    }
}

impl Engine for OnnxRuntime {
    fn name(&self) -> &'static str {
        "onnxruntime"
    }

    fn device(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match processor() {
            Some(processor) => format!("{processor}, {cores} cores"),
            None => format!("{} processor, {cores} cores", std::env::consts::ARCH),
        }
    }

    fn load(&self, source: &Source) -> Result<Arc<dyn Model>, EngineError> {
        let wrong = |reason| EngineError::Load { file: source.file.clone(), reason };
        let session = file::open(&self.environment, source).map_err(wrong)?;
        let signature = file::signature(specs::read(&session).map_err(wrong)?);
        Ok(Arc::new(OnnxModel {
            environment: self.environment.clone(),
            source: source.clone(),
            signature,
            first: Mutex::new(Some(session)),
        }))
    }
}

/// An ONNX file that was read.
struct OnnxModel {
    environment: Environment,
    source: Source,
    signature: Signature,
    /// The session that was made to read the signature. The first caller gets it.
    first: Mutex<Option<ort::session::Session>>,
}

impl Model for OnnxModel {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn session(&self, signature: &Signature) -> Result<Box<dyn Session>, EngineError> {
        let wrong = |reason| EngineError::Load { file: self.source.file.clone(), reason };
        let first = self.first.lock().expect("no thread panics while holding it").take();
        let inner = match first {
            Some(session) => session,
            None => file::open(&self.environment, &self.source).map_err(wrong)?,
        };
        make_ready(inner, signature).map_err(wrong)
    }
}

/// Makes a session that runs with a signature, if the signature fits the file.
pub(crate) fn make_ready(
    inner: ort::session::Session,
    signature: &Signature,
) -> Result<Box<dyn Session>, String> {
    // The specs of this very session are read, because the file may have been replaced.
    compatible::check(&specs::read(&inner)?, signature)?;
    let session = session::OnnxSession::new(inner, signature.clone());
    Ok(Box::new(session.map_err(|error| one_line(&error))?))
}

/// The processor's name, from `/proc/cpuinfo`.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The text of an error of ONNX Runtime or of the linker, without line breaks.
pub(crate) fn one_line(error: &dyn std::error::Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
