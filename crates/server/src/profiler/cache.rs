//! Keeps what was measured: beside the model, or in the user's cache where the model's folder
//! cannot be written.
//!
//! A file that is missing, broken or of another model, engine, device or format is measured again;
//! never an error.

use std::io;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use fermata_core::Span;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::kept_lengths::LengthDocument;
use super::key::{CacheKey, FORMAT};
use super::lengths::LengthTable;
use super::table::{Latency, Measured, Stop};

/// The sorts of documents, as their files are called.
const PROFILE: &str = "profile";
const LENGTHS: &str = "lengths";
/// The folder of the profiles, in that of a version. Hidden, so that its writing is no change of
/// the model.
const FOLDER: &str = ".fermata";

/// Where the profiles of a version are kept.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Tried in this order.
    homes: Vec<Home>,
}

/// One place for profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The folder; made when it is needed.
    pub folder: PathBuf,
    /// Whether it is shared with other models.
    pub shared: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    key: CacheKey,
    limit_ms: f64,
    stop: StopWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    batches: Vec<Row>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StopWord {
    Failed,
    Limit,
    MaxBatch,
    Time,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    mean_ms: f64,
    median_ms: f64,
    tail_ms: f64,
    runs: usize,
}

impl Cache {
    /// For a model's file: the folder beside it, then the user's cache, if there is a user.
    pub fn of(file: &Path) -> Self {
        let beside = file.parent().unwrap_or(Path::new("")).join(FOLDER);
        let variable =
            |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        let user = user.map(|folder| Home { folder: folder.join("fermata"), shared: true });
        let homes = [Home { folder: beside, shared: false }].into_iter().chain(user).collect();
        Self { homes }
    }

    /// In these places.
    pub fn at(homes: Vec<Home>) -> Self {
        Self { homes }
    }

    /// What was measured before, if it tells all that would be measured now.
    pub fn load(&self, key: &CacheKey, limit: Span, max_batch: usize) -> Option<Measured> {
        let check =
            |document: Document| (document.key == *key).then(|| document.check()).transpose();
        self.find(PROFILE, key, check)?.within(limit, max_batch.max(1))
    }

    /// Keeps a measurement in the first place that can be written, and says where.
    pub fn store(&self, key: &CacheKey, measured: &Measured) -> io::Result<PathBuf> {
        self.keep(PROFILE, key, &Document::of(key, measured))
    }

    /// What was measured before of a model whose requests have a length, if it tells all that would
    /// be measured now.
    pub fn load_lengths(&self, key: &CacheKey, slo: Span) -> Option<LengthTable> {
        let check =
            |document: LengthDocument| (document.key == *key).then(|| document.check()).transpose();
        let table: LengthTable = self.find(LENGTHS, key, check)?;
        (table.slo >= slo || table.limit.is_some()).then_some(LengthTable { slo, ..table })
    }

    /// Keeps what was measured of a model whose requests have a length.
    pub fn store_lengths(&self, key: &CacheKey, table: &LengthTable) -> io::Result<PathBuf> {
        self.keep(LENGTHS, key, &LengthDocument::of(key, table))
    }

    /// The first document of one sort that can be read and passes.
    fn find<D: DeserializeOwned, T>(
        &self,
        sort: &str,
        key: &CacheKey,
        check: impl Fn(D) -> Result<Option<T>, String>,
    ) -> Option<T> {
        self.homes.iter().find_map(|home| {
            let file = home.folder.join(key.file_name(sort, home.shared));
            let found = read(&file).and_then(|document| match document {
                Some(document) => check(document),
                None => Ok(None),
            });
            found.unwrap_or_else(|reason| {
                let file = file.display();
                tracing::warn!(%file, reason, "the kept profile cannot be used; measuring again");
                None
            })
        })
    }

    fn keep(&self, sort: &str, key: &CacheKey, document: &impl Serialize) -> io::Result<PathBuf> {
        let text = serde_json::to_string_pretty(document).map_err(io::Error::other)?;
        let mut first_error = None;
        for home in &self.homes {
            let file = home.folder.join(key.file_name(sort, home.shared));
            match write(&file, &text) {
                Ok(()) => return Ok(file),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| io::Error::other("there is no place for profiles")))
    }
}

impl Document {
    fn of(key: &CacheKey, measured: &Measured) -> Self {
        let row = |latency: &Latency| Row {
            mean_ms: latency.mean.as_ms(),
            median_ms: latency.median.as_ms(),
            tail_ms: latency.tail.as_ms(),
            runs: latency.runs,
        };
        let (stop, failure) = match &measured.stop {
            Stop::Failed(reason) => (StopWord::Failed, Some(reason.clone())),
            Stop::Limit => (StopWord::Limit, None),
            Stop::MaxBatch => (StopWord::MaxBatch, None),
            Stop::Time => (StopWord::Time, None),
        };
        Self {
            format: FORMAT,
            key: key.clone(),
            limit_ms: measured.limit.as_ms(),
            stop,
            failure,
            batches: measured.batches.iter().map(row).collect(),
        }
    }

    fn check(self) -> Result<Measured, String> {
        let span = |ms: f64| {
            let sound = ms.is_finite() && ms >= 0.0;
            sound.then(|| Span::from_ms(ms)).ok_or_else(|| format!("{ms} is no latency"))
        };
        let row = |row: &Row| {
            Ok(Latency {
                mean: span(row.mean_ms)?,
                median: span(row.median_ms)?,
                tail: span(row.tail_ms)?,
                runs: row.runs,
            })
        };
        let batches = self.batches.iter().map(row).collect::<Result<Vec<_>, String>>()?;
        if batches.is_empty() {
            return Err("it has no batches".to_owned());
        }
        let stop = match self.stop {
            StopWord::Failed => Stop::Failed(self.failure.unwrap_or_default()),
            StopWord::Limit => Stop::Limit,
            StopWord::MaxBatch => Stop::MaxBatch,
            StopWord::Time => Stop::Time,
        };
        Ok(Measured { batches, stop, limit: span(self.limit_ms)? })
    }
}

/// The document in a file; `None` if there is no file, or it is of another format.
fn read<D: DeserializeOwned>(file: &Path) -> Result<Option<D>, String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let head: Head = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if head.format != FORMAT {
        return Ok(None);
    }
    serde_json::from_str(&text).map(Some).map_err(|error| error.to_string())
}

/// Writes a file whole or not at all.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", process::id()));
    let neighbour = file.with_file_name(name);
    let written = fs::write(&neighbour, text).and_then(|()| fs::rename(&neighbour, file));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&neighbour);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiler::content_hash;

    fn key(content: &str) -> CacheKey {
        CacheKey {
            content: content.to_owned(),
            engine: "onnxruntime".to_owned(),
            device: "a processor, 2 cores".to_owned(),
            threads: 1,
            inputs: Vec::new(),
            outputs: Vec::new(),
            batched: true,
        }
    }

    fn measured() -> Measured {
        let latency = |ms| Latency {
            mean: Span::from_ms(ms),
            median: Span::from_ms(ms),
            tail: Span::from_ms(1.1 * ms),
            runs: 10,
        };
        let batches = vec![latency(1.0), latency(1.5), latency(2.0), latency(2.5)];
        Measured { batches, stop: Stop::MaxBatch, limit: Span::from_ms(25.0) }
    }

    fn load(cache: &Cache, key: &CacheKey) -> Option<Measured> {
        cache.load(key, Span::from_ms(25.0), 4)
    }

    #[test]
    fn what_is_kept_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::of(&folder.path().join("1/model.onnx"));
        assert_eq!(load(&Cache::at(cache.homes[..1].to_vec()), &key("a")), None);
        let file = cache.store(&key("a"), &measured()).unwrap();
        assert!(file.starts_with(folder.path().join("1/.fermata")));
        assert!(file.file_name().unwrap().to_str().unwrap().starts_with("profile-onnxruntime-"));
        assert_eq!(load(&cache, &key("a")), Some(measured()));
        assert_eq!(cache.load(&key("a"), Span::from_ms(2.0), 4).unwrap().max_batch(), 3);
        let failed = Measured { stop: Stop::Failed("reshape".to_owned()), ..measured() };
        cache.store(&key("a"), &failed).unwrap();
        assert_eq!(load(&cache, &key("a")), Some(failed));
        assert_eq!(
            fs::read_dir(file.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file is left"
        );
    }

    #[test]
    fn lengths_are_kept_beside_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(vec![Home { folder: folder.path().to_owned(), shared: false }]);
        let ms = Span::from_ms;
        let table = LengthTable {
            alone: vec![(1, vec![ms(1.0), ms(1.1)]), (8, vec![ms(2.0)])],
            batches: vec![(2, 8, ms(3.0))],
            limit: None,
            batch_limit: Some(4),
            slo: ms(25.0),
        };
        assert_eq!(cache.load_lengths(&key("a"), ms(25.0)), None);
        let file = cache.store_lengths(&key("a"), &table).unwrap();
        cache.store(&key("a"), &measured()).unwrap();
        assert_eq!(cache.load_lengths(&key("a"), ms(25.0)), Some(table.clone()));
        assert_eq!(cache.load_lengths(&key("a"), ms(20.0)).unwrap().slo, ms(20.0));
        assert_eq!(cache.load_lengths(&key("a"), ms(30.0)), None, "longer ones are of interest");
        assert_eq!(cache.load_lengths(&key("b"), ms(25.0)), None);
        let text = fs::read_to_string(&file).unwrap();
        for broken in [
            text.replace("\"format\": 1", "\"format\": 2"),
            text.replace("\"length\": 1", "\"length\": 8"),
            text.replace("\"slo_ms\": 25.0", "\"slo_ms\": -1"),
            text.replace("2.0", "\"x\""),
            text[..text.len() / 2].to_owned(),
        ] {
            assert_ne!(broken, text);
            fs::write(&file, &broken).unwrap();
            assert_eq!(cache.load_lengths(&key("a"), ms(25.0)), None, "{broken}");
        }
    }

    #[test]
    fn another_model_or_device_is_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(vec![Home { folder: folder.path().to_owned(), shared: false }]);
        cache.store(&key("a"), &measured()).unwrap();
        assert_eq!(load(&cache, &key("b")), None);
        for other in [
            CacheKey { device: "another".to_owned(), ..key("a") },
            CacheKey { threads: 2, ..key("a") },
            CacheKey { engine: "emulated".to_owned(), ..key("a") },
            CacheKey { batched: false, ..key("a") },
            CacheKey { inputs: vec![("x".to_owned(), "FP32".to_owned(), vec![3])], ..key("a") },
        ] {
            assert_eq!(load(&cache, &other), None, "{other:?}");
            cache.store(&other, &measured()).unwrap();
            assert_eq!(load(&cache, &key("a")), Some(measured()), "both are kept: {other:?}");
        }
    }

    #[test]
    fn broken_files_are_measured_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(vec![Home { folder: folder.path().to_owned(), shared: false }]);
        let file = cache.store(&key("a"), &measured()).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        for broken in [
            String::new(),
            "{".to_owned(),
            "null".to_owned(),
            text[..text.len() / 2].to_owned(),
            text.replace("\"format\": 1", "\"format\": 2"),
            text.replace("\"mean_ms\": 1.0", "\"mean_ms\": -1.0"),
            text.replace("\"mean_ms\": 1.0", "\"mean_ms\": \"x\""),
            text.replace("\"limit_ms\"", "\"limits\""),
        ] {
            assert_ne!(broken, text);
            fs::write(&file, &broken).unwrap();
            assert_eq!(load(&cache, &key("a")), None, "{broken}");
        }
        fs::write(&file, b"\xff\xfe").unwrap();
        assert_eq!(load(&cache, &key("a")), None);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(load(&cache, &key("a")), None);
    }

    #[test]
    fn where_one_place_cannot_be_written_the_next_is() {
        let folder = tempfile::tempdir().unwrap();
        let (blocked, shared) = (folder.path().join("file"), folder.path().join("cache"));
        fs::write(&blocked, "").unwrap();
        let homes = vec![
            Home { folder: blocked.join(".fermata"), shared: false },
            Home { folder: shared.clone(), shared: true },
        ];
        let cache = Cache::at(homes);
        assert!(cache.store(&key("a"), &measured()).unwrap().starts_with(&shared));
        cache.store(&key("b"), &Measured { limit: Span::from_ms(30.0), ..measured() }).unwrap();
        assert_eq!(load(&cache, &key("a")), Some(measured()));
        assert_eq!(load(&cache, &key("b")).unwrap().limit, Span::from_ms(25.0));
        assert!(Cache::at(Vec::new()).store(&key("a"), &measured()).is_err());
    }

    #[test]
    fn the_hash_is_of_the_file_and_its_neighbours() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.onnx");
        fs::write(&file, "graph").unwrap();
        let alone = content_hash(&file).unwrap();
        fs::create_dir(folder.path().join(".fermata")).unwrap();
        fs::write(folder.path().join(".hidden"), "x").unwrap();
        assert_eq!(content_hash(&file).unwrap(), alone);
        fs::write(folder.path().join("weights.bin"), "x").unwrap();
        let with_weights = content_hash(&file).unwrap();
        assert_ne!(with_weights, alone);
        fs::write(folder.path().join("weights.bin"), "y").unwrap();
        assert_ne!(content_hash(&file).unwrap(), with_weights);
        assert!(content_hash(&folder.path().join("none.onnx")).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("f");
            fs::write(&file, bytes).unwrap();
            let _ = read::<Document>(&file);
            let _ = read::<LengthDocument>(&file);
        }
    }
}
