//! The modules of a crate as a tree, and which module a path leads to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path as FilePath, PathBuf};

use crate::scan::{Path, Scan, scan};

/// A module by its number. Zero is the root of the crate.
pub type ModuleId = usize;

/// All modules of a crate.
#[derive(Debug, Default)]
pub struct CrateModules {
    modules: Vec<Module>,
}

/// A module.
#[derive(Debug)]
pub(crate) struct Module {
    /// Empty for the root.
    pub(crate) name: String,
    pub(crate) parent: Option<ModuleId>,
    pub(crate) file: PathBuf,
    children: BTreeMap<String, ModuleId>,
    imports: BTreeMap<String, Vec<String>>,
    pub(crate) paths: Vec<Path>,
}

/// A chain of imports that is longer than this is a circle.
const IMPORTS_MAX: usize = 32;

impl CrateModules {
    /// Reads a crate from its root file and all files that belong to it; else what is wrong.
    pub fn read(root: &FilePath) -> Result<Self, String> {
        let mut all = Self::default();
        let folder = root.parent().unwrap_or(FilePath::new(""));
        all.read_file(String::new(), None, root, folder)?;
        Ok(all)
    }

    /// Reads a file. Files of its modules are in `folder`.
    fn read_file(
        &mut self,
        name: String,
        parent: Option<ModuleId>,
        file: &FilePath,
        folder: &FilePath,
    ) -> Result<ModuleId, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let tokens = text.parse().map_err(|error| format!("{}: {error}", file.display()))?;
        self.add(name, parent, file, folder, scan(tokens))
    }

    fn add(
        &mut self,
        name: String,
        parent: Option<ModuleId>,
        file: &FilePath,
        folder: &FilePath,
        found: Scan,
    ) -> Result<ModuleId, String> {
        let id = self.modules.len();
        self.modules.push(Module {
            name,
            parent,
            file: file.to_owned(),
            children: BTreeMap::new(),
            imports: found.imports.into_iter().collect(),
            paths: found.paths,
        });
        for (child, inner) in found.inline {
            let at = self.add(child.clone(), Some(id), file, &folder.join(&child), inner)?;
            self.modules[id].children.insert(child, at);
        }
        for child in found.files {
            let (alone, in_folder) =
                (folder.join(format!("{child}.rs")), folder.join(&child).join("mod.rs"));
            let file = if alone.exists() { alone } else { in_folder };
            let at = self.read_file(child.clone(), Some(id), &file, &folder.join(&child))?;
            self.modules[id].children.insert(child, at);
        }
        Ok(id)
    }

    /// Every module with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ModuleId, &Module)> {
        self.modules.iter().enumerate()
    }

    pub(crate) fn module(&self, id: ModuleId) -> &Module {
        &self.modules[id]
    }

    /// The module and all that it is in, the root first.
    pub(crate) fn ancestry(&self, id: ModuleId) -> Vec<ModuleId> {
        let mut found = vec![id];
        while let Some(parent) = self.modules[found[found.len() - 1]].parent {
            found.push(parent);
        }
        found.reverse();
        found
    }

    /// The module that a path in `from` leads to: that in which its item is, or the module itself.
    /// `None` for a path that leaves the crate.
    pub(crate) fn resolve(&self, from: ModuleId, names: &[String]) -> Option<ModuleId> {
        self.resolve_within(from, names, IMPORTS_MAX)
    }

    fn resolve_within(&self, from: ModuleId, names: &[String], imports: usize) -> Option<ModuleId> {
        let (first, rest) = names.split_first()?;
        let start = match first.as_str() {
            "crate" => 0,
            "self" => from,
            "super" => self.modules[from].parent?,
            _ => return self.enter(from, names, imports),
        };
        if rest.is_empty() { Some(start) } else { self.descend(start, rest, imports) }
    }

    /// A path that begins with a name of this module's own: a child, or an import.
    fn enter(&self, from: ModuleId, names: &[String], imports: usize) -> Option<ModuleId> {
        let module = &self.modules[from];
        let is_known =
            module.children.contains_key(&names[0]) || module.imports.contains_key(&names[0]);
        if is_known { self.descend(from, names, imports) } else { None }
    }

    fn descend(&self, from: ModuleId, names: &[String], imports: usize) -> Option<ModuleId> {
        let module = &self.modules[from];
        let Some((first, rest)) = names.split_first() else { return Some(from) };
        if first == "super" {
            return self.descend(module.parent?, rest, imports);
        }
        if let Some(&child) = module.children.get(first) {
            return self.descend(child, rest, imports);
        }
        if let Some(imported) = module.imports.get(first) {
            // An import of the same name from outside, as in `use log::log`, ends here.
            let is_itself = imported.len() == 1 && imported[0] == *first;
            if imports > 0 && !is_itself {
                let whole: Vec<String> = imported.iter().chain(rest).cloned().collect();
                return self.resolve_within(from, &whole, imports - 1);
            }
        }
        Some(from)
    }
}
