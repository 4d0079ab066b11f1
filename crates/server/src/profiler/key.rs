//! What a kept measurement is of: the model by its content, the engine, the device, and how it was
//! measured.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use fermata_engine::{Engine, EngineError, Signature, Source};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::measure::Options;

/// Files of another format are not read.
pub(super) const FORMAT: u32 = 1;

/// What a measurement is of: it is good for nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheKey {
    /// The hash of the model's content.
    pub(super) content: String,
    /// The engine.
    pub(super) engine: String,
    /// What it runs on.
    pub(super) device: String,
    /// Threads of a session.
    pub(super) threads: usize,
    /// Name, type and shape of each input as it was measured.
    pub(super) inputs: Vec<(String, String, Vec<i64>)>,
    /// The outputs that were asked for.
    pub(super) outputs: Vec<String>,
    /// Whether there is a batch axis.
    pub(super) batched: bool,
}

impl CacheKey {
    /// Of a model on an engine, measured like this. Reads the whole model.
    pub fn of(
        engine: &dyn Engine,
        source: &Source,
        signature: &Signature,
        options: &Options,
    ) -> Result<Self, EngineError> {
        let content = content_hash(&source.file).map_err(|error| EngineError::Load {
            file: source.file.clone(),
            reason: format!("cannot be read: {error}"),
        })?;
        let inputs = signature.inputs.iter().map(|spec| {
            let shape = options.shapes.get(&spec.name).unwrap_or(&spec.shape);
            (spec.name.clone(), spec.datatype.name().to_owned(), shape.clone())
        });
        Ok(Self {
            content,
            engine: engine.name().to_owned(),
            device: engine.device(),
            threads: source.threads,
            inputs: inputs.collect(),
            outputs: signature.outputs.iter().map(|spec| spec.name.clone()).collect(),
            batched: signature.max_batch > 0,
        })
    }

    /// The same on another device.
    pub(crate) fn on(&self, device: String) -> Self {
        Self { device, ..self.clone() }
    }

    /// Devices, threads and shapes have files of their own, so that two servers do not fight for
    /// one. The content is in the name only where several models share a folder: beside the model
    /// the old file is replaced.
    pub(super) fn file_name(&self, sort: &str, shared: bool) -> String {
        let content = if shared { self.content.clone() } else { String::new() };
        let key = Self { content, ..self.clone() };
        let text = serde_json::to_string(&key).expect("a key is plain data");
        let hash = hex(&Sha256::digest(text.as_bytes()));
        format!("{sort}-{}-{}.json", self.engine, &hash[..16])
    }
}

/// The hash of a model: of its file and of those beside it, where its weights may be.
pub fn content_hash(file: &Path) -> io::Result<String> {
    let mut files = vec![file.to_owned()];
    if let Some(folder) = file.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let hidden =
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.is_file() && path.file_name() != file.file_name() {
                files.push(path);
            }
        }
    }
    files[1..].sort_unstable();
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for file in files {
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        let mut content = fs::File::open(&file)?;
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
        digest.update(content.metadata()?.len().to_le_bytes());
        loop {
            match content.read(&mut buffer)? {
                0 => break,
                count => digest.update(&buffer[..count]),
            }
        }
    }
    Ok(hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
