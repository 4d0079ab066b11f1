//! Applications by name: the first that ask have a place of their own, the rest share the last.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The header, and the gRPC metadata, that names the application.
pub(crate) const HEADER: &str = "x-fermata-application";
/// The parameter of a request that does.
pub(crate) const PARAMETER: &str = "application";

/// So many are told apart: those that come later share the last place. More would make a decision
/// slow, and whoever invents a name for every request must not fill the memory.
pub(super) const MOST: usize = 32;
/// The last place, as metrics call it.
const OTHERS: &str = "others";
/// A longer name is a slip.
const BYTES_MAX: usize = 64;

/// An application that has asked, by its place among those of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Application(u16);

impl Application {
    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// The applications of one model. Names are only ever added, each once, so that nobody waits to
/// read them.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    /// Filled from the front. The last place of all is for the rest.
    names: [OnceLock<Box<str>>; MOST - 1],
    requests: [AtomicU64; MOST],
    /// Some share the last place, and it was said.
    is_full: AtomicBool,
}

impl Tags {
    /// The place of an application; a new one for a new name, while there are any. The error says
    /// what is wrong with the name.
    pub(crate) fn find(&self, model: &str, name: &str) -> Result<Application, String> {
        if name.is_empty() || name.len() > BYTES_MAX || name.chars().any(char::is_control) {
            let shown: String = name.chars().take(BYTES_MAX).collect();
            let shown = shown.escape_debug();
            return Err(format!(
                "the application is '{shown}', expected a name of 1 to {BYTES_MAX} bytes without \
                 control characters"
            ));
        }
        for (at, place) in self.names.iter().enumerate() {
            // Of two that bring a new name at once one has the place, and the other sees its name.
            if &**place.get_or_init(|| name.into()) == name {
                return Ok(Application(at as u16));
            }
        }
        if !self.is_full.load(Relaxed) && !self.is_full.swap(true, Relaxed) {
            let most = MOST - 1;
            tracing::warn!(
                model,
                most,
                "has more applications than are told apart: the rest are one"
            );
        }
        Ok(Application((MOST - 1) as u16))
    }

    /// Whether anybody has said who asks.
    pub(crate) fn is_used(&self) -> bool {
        self.names[0].get().is_some()
    }

    pub(super) fn count(&self, application: Application) {
        self.requests[application.index()].fetch_add(1, Relaxed);
    }

    /// The applications that have asked, and how often each did.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (&str, u64)> {
        let names = self.names.iter().map_while(|name| name.get().map(|name| &**name));
        let counted = names.zip(&self.requests).map(|(name, count)| (name, count.load(Relaxed)));
        let rest = self.requests[MOST - 1].load(Relaxed);
        counted.chain((rest > 0).then_some((OTHERS, rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_have_places_of_their_own_and_the_rest_share_one() {
        let tags = Tags::default();
        assert!(!tags.is_used());
        for at in 0..100 {
            let found = tags.find("m", &format!("app{at}")).unwrap();
            assert_eq!(found.index(), at.min(MOST - 1));
            assert_eq!(tags.is_full.load(Relaxed), at >= MOST - 1);
            tags.count(found);
        }
        assert_eq!(tags.find("m", "app7").unwrap().index(), 7);
        let counted: Vec<_> = tags.requests().collect();
        assert_eq!(counted.len(), MOST);
        assert_eq!((counted[0], counted[MOST - 1]), (("app0", 1), ("others", 69)));
    }

    #[test]
    fn a_name_that_is_none_is_refused_in_one_line() {
        let tags = Tags::default();
        for name in ["", "a\nb", &"x".repeat(65), "\u{7f}"] {
            let said = tags.find("m", name).unwrap_err();
            assert!(said.contains("1 to 64 bytes") && !said.contains('\n'), "{said}");
        }
        assert!(!tags.is_used());
        assert!(tags.find("m", "\u{fc}ber alles").is_ok());
    }

    #[test]
    fn many_at_once_agree() {
        let tags = Tags::default();
        let find =
            || (0..40).map(|at| tags.find("m", &at.to_string()).unwrap()).collect::<Vec<_>>();
        let found: Vec<Vec<Application>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(find)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // Whoever was first: each name has one place.
        for at in 0..MOST - 1 {
            let name = tags.names[at].get().unwrap().parse::<usize>().unwrap();
            assert!(found.iter().all(|found| found[name].index() == at));
        }
    }
}
