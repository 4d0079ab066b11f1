//! What requests run like: the kinds of a model's requests, told apart by their length or by their
//! application.
//!
//! A few comparisons for each request; nothing is allocated, and nobody waits, once an application
//! is known.

mod lengths;
mod tags;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fermata_core::KindId;

pub(crate) use lengths::Lengths;
pub use tags::Application;
pub(crate) use tags::{HEADER, PARAMETER, Tags};

/// How the requests of one model are told apart.
#[derive(Debug)]
pub(crate) struct Kinds {
    rule: KindRule,
    /// The applications that have asked; counted however requests are told apart.
    tags: Tags,
    /// Requests that came, by kind.
    came: Box<[AtomicU64]>,
}

/// What tells requests apart.
#[derive(Debug)]
pub(crate) enum KindRule {
    /// Nothing: all run alike.
    Alike,
    /// Who asks.
    ByApplication,
    /// How long they are.
    ByLength(Lengths),
}

impl KindRule {
    /// So many kinds there are where applications are told apart: those that do not say are one.
    pub(crate) const APPLICATIONS: usize = 1 + tags::MOST;
}

impl Kinds {
    /// Nobody has asked yet.
    pub(crate) fn new(rule: KindRule) -> Self {
        let kinds = match &rule {
            KindRule::Alike => 1,
            KindRule::ByApplication => KindRule::APPLICATIONS,
            KindRule::ByLength(lengths) => lengths.count(),
        };
        let came = (0..kinds).map(|_| AtomicU64::new(0)).collect();
        Self { rule, tags: Tags::default(), came }
    }

    /// What a request of this application and length runs like. Counts it.
    pub(crate) fn of(&self, application: Option<Application>, length: Option<usize>) -> KindId {
        if let Some(application) = application {
            self.tags.count(application);
        }
        let kind = match &self.rule {
            KindRule::Alike => KindId::default(),
            // Those that do not say are a kind as well.
            KindRule::ByApplication => KindId(application.map_or(0, |tag| 1 + tag.index() as u16)),
            KindRule::ByLength(lengths) => lengths.kind(length.unwrap_or(0)),
        };
        self.came[kind.index()].fetch_add(1, Relaxed);
        kind
    }

    /// How many requests of each kind came.
    pub(crate) fn came(&self) -> Vec<u64> {
        self.came.iter().map(|count| count.load(Relaxed)).collect()
    }

    /// The ranges, where requests are told apart by their length.
    pub(crate) fn lengths(&self) -> Option<&Lengths> {
        match &self.rule {
            KindRule::ByLength(lengths) => Some(lengths),
            KindRule::Alike | KindRule::ByApplication => None,
        }
    }

    /// The applications that have asked.
    pub(crate) fn tags(&self) -> &Tags {
        &self.tags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_what_the_model_says() {
        let alike = Kinds::new(KindRule::Alike);
        let tag = alike.tags().find("m", "a").unwrap();
        assert_eq!(alike.of(Some(tag), Some(9)), KindId(0));
        let tagged = Kinds::new(KindRule::ByApplication);
        let (one, other) =
            (tagged.tags().find("m", "a").unwrap(), tagged.tags().find("m", "b").unwrap());
        assert_eq!(tagged.of(None, Some(9)), KindId(0));
        assert_eq!(tagged.of(Some(one), None), KindId(1));
        assert_eq!(tagged.of(Some(other), None), KindId(2));
        assert_eq!(tagged.came()[..3], [1, 1, 1]);
        let long = Kinds::new(KindRule::ByLength(lengths::tests::linear()));
        assert!(long.of(Some(one), Some(8)) < long.of(Some(one), Some(64)));
        assert_eq!(long.of(None, None), KindId(0), "a request without a length is a short one");
        assert!(
            long.came.len() <= fermata_core::KINDS_MAX
                && tagged.came.len() <= fermata_core::KINDS_MAX
        );
    }
}
