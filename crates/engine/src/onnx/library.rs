//! Finds ONNX Runtime's library and loads it, once per process.

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ort::LoadDynamicError;
use ort::environment::Environment;
use ort::logging::LogLevel;

use super::one_line;
use crate::EngineError;

/// Names the library, and takes precedence over all folders. The `ort` crate and other programs use
/// the same variable.
const VARIABLE: &str = "ORT_DYLIB_PATH";

/// The loaded library. A failure is not kept: the next call tries again.
static LOADED: Mutex<Option<Environment>> = Mutex::new(None);

/// Loads the library, unless it is loaded.
pub(crate) fn environment(folders: &[PathBuf]) -> Result<Environment, EngineError> {
    let mut loaded = LOADED.lock().expect("no thread panics while holding it");
    if let Some(environment) = &*loaded {
        return Ok(environment.clone());
    }
    let path = find(std::env::var_os(VARIABLE), folders).map_err(EngineError::Library)?;
    let environment = load(&path).map_err(EngineError::Library)?;
    *loaded = Some(environment.clone());
    Ok(environment)
}

/// Finds the library; the error says how to install it.
fn find(variable: Option<OsString>, folders: &[PathBuf]) -> Result<PathBuf, String> {
    if let Some(path) = variable.filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    folders.iter().find_map(|folder| library_in(folder)).ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
        format!(
            "there is no libonnxruntime.so in {}: run `make setup`, or set {VARIABLE} to the \
             library",
            folders.join(" or ")
        )
    })
}

/// The library in a folder: the last by name if there are several versions.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let named = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
            name.strip_prefix("libonnxruntime.so")
                .is_some_and(|version| version.is_empty() || version.starts_with('.'))
        })
    };
    let found = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(named).max()?;
    // The `ort` crate would resolve a relative path from the folder of the binary first.
    std::path::absolute(found).ok()
}

fn load(path: &Path) -> Result<Environment, String> {
    // The path is passed explicitly, because the `ort` crate panics if it finds no library by
    // itself.
    let builder = ort::init_from(path).map_err(|error| {
        let reason = match &error {
            // The crate's own text only says that loading failed. The linker's text names the file
            // and the cause.
            LoadDynamicError::Dlopen { error, .. } => error.source().map(one_line),
            _ => None,
        };
        let reason = reason.unwrap_or_else(|| one_line(&error));
        format!(
            "cannot load ONNX Runtime: {reason}: run `make setup`, or set {VARIABLE} to the library"
        )
    })?;
    let environment = builder
        .with_name("fermata")
        .with_telemetry(false)
        .build()
        .map_err(|error| format!("cannot start ONNX Runtime: {}", one_line(&error)))?;
    if std::env::var_os("ORT_LOG").is_none() {
        // Failures are returned as errors, so the library need not print them to the terminal too.
        environment.set_log_level(LogLevel::Fatal);
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_goes_before_any_folder() {
        assert_eq!(find(Some("x.so".into()), &[]).unwrap(), Path::new("x.so"));
        find(Some("".into()), &[]).unwrap_err();
    }

    #[test]
    fn a_missing_library_says_what_to_run() {
        assert_eq!(
            find(None, &["nowhere".into(), "else".into()]).unwrap_err(),
            "there is no libonnxruntime.so in nowhere or else: run `make setup`, or set \
             ORT_DYLIB_PATH to the library"
        );
    }

    #[test]
    fn a_file_that_is_no_library_says_so_in_one_line() {
        let message = load(Path::new("/dev/null")).unwrap_err();
        assert!(message.starts_with("cannot load ONNX Runtime: /dev/null: "), "{message}");
        assert!(message.contains("make setup") && !message.contains('\n'), "{message}");
    }
}
