//! A tensor as a file names it, so that what is wrong with it is said where it stands.

use std::collections::BTreeSet;
use std::path::Path;

use fermata_protocol::proto;

use crate::error::RepositoryError;

/// One input or output of the file.
pub(crate) struct Place<'a> {
    pub(crate) file: &'a Path,
    /// `input` or `output`.
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    /// From 1, for one without a name.
    pub(crate) number: usize,
}

impl<'a> Place<'a> {
    pub(crate) fn refuse(&self, key: &str, reason: impl Into<String>) -> RepositoryError {
        let Self { file, kind, name, number } = self;
        let key = match name.is_empty() {
            true => format!("{kind} {number}: {key}"),
            false => format!("{kind} '{name}': {key}"),
        };
        RepositoryError::key(file, key, reason)
    }

    pub(crate) fn check_name(&self, names: &mut BTreeSet<&'a str>) -> Result<(), RepositoryError> {
        if self.name.is_empty() {
            return Err(self.refuse("name", "missing"));
        }
        if self.name.contains(char::is_control) {
            return Err(RepositoryError::key(
                self.file,
                format!("{} {}", self.kind, self.number),
                "name: is not a word in one line",
            ));
        }
        if !names.insert(self.name) {
            return Err(self.refuse("name", format!("two {}s have it", self.kind)));
        }
        Ok(())
    }

    pub(crate) fn check_dims(&self, dims: &[i64]) -> Result<(), RepositoryError> {
        match dims.iter().find(|&&dim| dim != -1 && dim < 1) {
            Some(dim) => {
                Err(self.refuse("dims", format!("{dim} is neither -1 (any length) nor above 0")))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn check_reshape(
        &self,
        reshape: Option<&proto::ModelTensorReshape>,
    ) -> Result<(), RepositoryError> {
        match reshape {
            Some(_) => {
                Err(self.refuse("reshape", "is not supported: give the dims that the model has"))
            }
            None => Ok(()),
        }
    }

    pub(crate) fn check_unset(&self, set: bool, key: &str) -> Result<(), RepositoryError> {
        match set {
            true => Err(self.refuse(key, "is not supported")),
            false => Ok(()),
        }
    }
}
