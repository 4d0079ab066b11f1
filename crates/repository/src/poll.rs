//! What has changed in a repository since it was last looked at, by names, sizes and times of
//! files: cheap, and nothing is read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use sha2::{Digest, Sha256};

/// Deeper folders than this are not looked into: links may go in circles.
const DEPTH_MAX: usize = 8;

/// The names, sizes and times of a model's files: two that are equal mean that nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// The models of a repository by name, each with its fingerprint.
pub type Survey = BTreeMap<String, Fingerprint>;

/// What must be done so that what is served is what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Models that are new.
    pub added: Vec<String>,
    /// Models with other files than before.
    pub changed: Vec<String>,
    /// Models that are gone.
    pub removed: Vec<String>,
}

impl Changes {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// What `now` has that `previous` had not, has otherwise, or has no more; each sorted by name.
pub fn diff(previous: &Survey, now: &Survey) -> Changes {
    let names = |survey: &Survey, choose: &dyn Fn(&String, &Fingerprint) -> bool| -> Vec<String> {
        let chosen = survey.iter().filter(|(name, fingerprint)| choose(name, fingerprint));
        chosen.map(|(name, _)| name.clone()).collect()
    };
    Changes {
        added: names(now, &|name, _| !previous.contains_key(name)),
        changed: names(now, &|name, fingerprint| {
            previous.get(name).is_some_and(|before| before != fingerprint)
        }),
        removed: names(previous, &|name, _| !now.contains_key(name)),
    }
}

/// Tells of a change once it has been seen twice: a model that is still being copied, or is being
/// replaced, looks different each time.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// What was last told.
    told: Survey,
    /// What was last seen.
    seen: Survey,
}

impl Watch {
    /// Begins with what has been loaded.
    pub fn new(loaded: Survey) -> Self {
        Self { seen: loaded.clone(), told: loaded }
    }

    /// What has changed and stayed so since the last call.
    pub fn poll(&mut self, now: Survey) -> Changes {
        let names = self.told.keys().chain(now.keys());
        let settled = names.filter(|name| self.seen.get(*name) == now.get(*name)).cloned();
        let mut next = self.told.clone();
        for name in settled.collect::<Vec<String>>() {
            match now.get(&name) {
                Some(&fingerprint) => next.insert(name, fingerprint),
                None => next.remove(&name),
            };
        }
        let changes = diff(&self.told, &next);
        (self.told, self.seen) = (next, now);
        changes
    }
}

impl Fingerprint {
    /// Of a model's folder and of files elsewhere on which the model depends. What cannot be read
    /// counts as not there.
    pub(crate) fn of(folder: &Path, others: &[&Path]) -> Self {
        let mut digest = Sha256::new();
        add_folder(&mut digest, folder, 0);
        others.iter().for_each(|file| add_file(&mut digest, file));
        Self(digest.finalize().into())
    }
}

fn add_folder(digest: &mut Sha256, folder: &Path, depth: usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort_unstable();
    for path in paths {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        // Hidden files are not the model's: the profile is kept in one, and its writing is no
        // change.
        if name.starts_with(b".") {
            continue;
        }
        match path.is_dir() {
            true if depth < DEPTH_MAX => {
                add_path(digest, &path, b'd');
                add_folder(digest, &path, depth + 1);
            }
            true => {}
            false => add_file(digest, &path),
        }
    }
}

fn add_file(digest: &mut Sha256, file: &Path) {
    let Ok(metadata) = fs::metadata(file) else { return };
    add_path(digest, file, b'f');
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    digest.update(metadata.len().to_le_bytes());
    digest.update(modified.map_or(0, |since| since.as_nanos()).to_le_bytes());
}

fn add_path(digest: &mut Sha256, path: &Path, kind: u8) {
    let path = path.as_os_str().as_encoded_bytes();
    digest.update([kind]);
    digest.update((path.len() as u64).to_le_bytes());
    digest.update(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(models: &[(&str, u8)]) -> Survey {
        models.iter().map(|&(name, mark)| (name.to_owned(), Fingerprint([mark; 32]))).collect()
    }

    fn changes(added: &[&str], changed: &[&str], removed: &[&str]) -> Changes {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        Changes { added: names(added), changed: names(changed), removed: names(removed) }
    }

    #[test]
    fn differences_are_told_by_kind() {
        let (before, after) =
            (survey(&[("a", 1), ("b", 1), ("c", 1)]), survey(&[("b", 2), ("c", 1), ("d", 1)]));
        assert_eq!(diff(&before, &after), changes(&["d"], &["b"], &["a"]));
        assert!(diff(&after, &after).is_empty());
    }

    #[test]
    fn a_folder_that_is_still_copied_waits_until_it_rests() {
        let mut watch = Watch::new(survey(&[("a", 1)]));
        assert_eq!(watch.poll(survey(&[("a", 1), ("b", 1)])), Changes::default());
        assert_eq!(watch.poll(survey(&[("a", 1), ("b", 2)])), Changes::default());
        assert_eq!(watch.poll(survey(&[("a", 1), ("b", 2)])), changes(&["b"], &[], &[]));
        assert_eq!(watch.poll(survey(&[("a", 1), ("b", 2)])), Changes::default());
    }

    #[test]
    fn a_folder_that_is_replaced_is_not_removed_in_between() {
        let mut watch = Watch::new(survey(&[("a", 1)]));
        assert_eq!(watch.poll(survey(&[])), Changes::default());
        assert_eq!(watch.poll(survey(&[("a", 2)])), Changes::default());
        assert_eq!(watch.poll(survey(&[("a", 2)])), changes(&[], &["a"], &[]));
        assert_eq!(watch.poll(survey(&[])), Changes::default());
        assert_eq!(watch.poll(survey(&[])), changes(&[], &[], &["a"]));
        assert_eq!(watch.poll(survey(&[])), Changes::default());
    }

    #[test]
    fn a_change_that_is_undone_in_time_is_none() {
        let mut watch = Watch::new(survey(&[("a", 1)]));
        assert_eq!(watch.poll(survey(&[("a", 2)])), Changes::default());
        assert_eq!(watch.poll(survey(&[("a", 1)])), Changes::default());
        assert_eq!(watch.poll(survey(&[("a", 1)])), Changes::default());
    }

    #[test]
    fn fingerprints_see_files_and_not_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        let of = || Fingerprint::of(folder.path(), &[]);
        let empty = of();
        fs::create_dir(folder.path().join("1")).unwrap();
        let with_version = of();
        assert_ne!(with_version, empty);
        fs::write(folder.path().join("1/model.onnx"), "abc").unwrap();
        let with_file = of();
        assert_ne!(with_file, with_version);
        fs::create_dir(folder.path().join("1/.fermata")).unwrap();
        fs::write(folder.path().join("1/.fermata/profile.json"), "{}").unwrap();
        assert_eq!(of(), with_file);
        fs::write(folder.path().join("1/model.onnx"), "abcd").unwrap();
        assert_ne!(of(), with_file);
    }
}
