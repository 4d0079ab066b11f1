//! What a crate may use.

use std::path::Path as FilePath;

use crate::module::CrateModules;

/// What a crate may use of the workspace, and what it must not use at all.
#[derive(Clone, Copy, Debug)]
pub struct CrateRules {
    /// The name of its folder.
    pub name: &'static str,
    /// The crates of the workspace that it may use.
    pub may_use: &'static [&'static str],
    /// Paths that must not stand in it, from their first name on or from a later one.
    pub forbidden: &'static [&'static str],
}

/// A name that must not stand where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    /// The file with the line.
    pub place: String,
    /// What stands there.
    pub path: String,
}

/// Reads the modules of a crate, by its folder.
pub fn read_crate(folder: &FilePath) -> Result<CrateModules, String> {
    CrateModules::read(&folder.join("src").join("lib.rs"))
}

impl CrateRules {
    /// Where the crate uses what it must not. Crates of the workspace begin with `prefix`.
    pub fn broken(&self, modules: &CrateModules, prefix: &str) -> Vec<Mention> {
        let mut found = Vec::new();
        for (_, module) in modules.iter() {
            for path in &module.paths {
                let other = path.names[0].strip_prefix(prefix);
                let may_use = |other: &str| {
                    self.may_use.iter().any(|allowed| allowed.replace('-', "_") == other)
                };
                let text = path.names.join("::");
                let is_forbidden = self
                    .forbidden
                    .iter()
                    .any(|name| text == *name || text.ends_with(&format!("::{name}")));
                if is_forbidden || other.is_some_and(|other| !may_use(other)) {
                    let place = format!("{}:{}", module.file.display(), path.line);
                    found.push(Mention { place, path: text });
                }
            }
        }
        found
    }
}
