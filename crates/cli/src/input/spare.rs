//! What spare executors are for, as files and policies say it.

use fermata_dispatch::Spare;
use fermata_files::{Checker, InputError};

/// The use of spare executors that a file names with its key `spare`, if it has that.
pub(crate) fn spare(
    checker: &Checker<'_>,
    name: Option<&str>,
) -> Result<Option<Spare>, InputError> {
    let parse = |name: &str| name.escape_default().to_string().parse();
    name.map(parse).transpose().map_err(|reason: String| checker.refuse("spare", reason))
}

/// Whether a policy of this name says itself what spare executors are for.
pub(crate) fn says_spare(policy: &str) -> bool {
    policy.starts_with("fermata:")
}
