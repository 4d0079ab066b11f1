//! Batches back to back: one is always begun while another runs, so that the device never waits for
//! us.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fermata_core::Span;
use fermata_engine::{EngineError, Inputs, Session};

/// A model that is to run one batch again and again.
pub(super) struct Side<'a> {
    pub(super) session: &'a mut dyn Session,
    pub(super) batch: &'a [Inputs],
}

/// When a loop has seen enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enough {
    /// At least so many batches,
    pub(super) batches: usize,
    /// and so long;
    pub(super) time: Duration,
    /// but no longer than this, once there are two.
    pub(super) at_most: Duration,
}

impl Enough {
    fn is_met(self, batches: usize, time: Duration) -> bool {
        let enough = batches >= self.batches && time >= self.time;
        enough || batches >= 2 && time >= self.at_most
    }
}

/// What a loop has seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Looped {
    /// How long each batch had the device, in order.
    pub(super) took: Vec<Span>,
    /// From the end of the batch before the first of them to that of the last.
    pub(super) wall: Span,
}

impl Looped {
    /// What half of the batches did not exceed.
    pub(super) fn median(&self) -> Span {
        quantile(&self.took, 0.5)
    }

    /// What 99 % of them did not exceed. Of more than ten, the slowest tells nothing by itself.
    pub(super) fn tail(&self) -> Span {
        let mut took = self.took.clone();
        took.sort_unstable();
        if took.len() > 10 {
            took.pop();
        }
        quantile(&took, 0.99)
    }

    /// From one end to the next, on average.
    pub(super) fn period(&self) -> Span {
        Span(self.wall.0 / (self.took.len() as u64).max(1))
    }
}

/// The smallest of the spans that at least this part of them do not exceed.
pub(super) fn quantile(spans: &[Span], part: f64) -> Span {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let at = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(at.max(1) - 1).copied().unwrap_or(Span::ZERO)
}

/// Runs a batch again and again until that is enough.
pub(super) fn alone(side: Side<'_>, enough: Enough) -> Result<Looped, EngineError> {
    let start = Instant::now();
    run(side, &mut |batches| !enough.is_met(batches, start.elapsed()), &mut || true)
}

/// Runs two models side by side until both have seen enough. What is told of either ran while the
/// other did.
pub(super) fn together(
    [first, second]: [Side<'_>; 2],
    enough: Enough,
) -> Result<[Looped; 2], EngineError> {
    let meeting = Meeting::default();
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| meeting.attend(second, enough));
        let one = meeting.attend(first, enough);
        (one, other.join().expect("a loop does not panic"))
    });
    Ok([one?, other?])
}

/// Runs a model beside something else, for as long as that takes.
pub(super) fn beside<T>(
    side: Side<'_>,
    other: impl FnOnce() -> Result<T, EngineError>,
) -> Result<(Looped, T), EngineError> {
    let (started, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let looping = scope.spawn(|| {
            let looped = run(side, &mut |_| !ended.load(Ordering::Acquire), &mut || {
                started.store(true, Ordering::Release);
                true
            });
            // Whoever waits for the beginning must not wait for ever.
            started.store(true, Ordering::Release);
            looped
        });
        wait_until(|| started.load(Ordering::Acquire));
        let done = other();
        ended.store(true, Ordering::Release);
        let looped = looping.join().expect("a loop does not panic")?;
        Ok((looped, done?))
    })
}

/// Where two loops meet: neither counts before the other has begun, nor ends before the other has
/// enough.
#[derive(Default)]
struct Meeting {
    begun: AtomicUsize,
    content: AtomicUsize,
    failed: AtomicBool,
}

impl Meeting {
    fn attend(&self, side: Side<'_>, enough: Enough) -> Result<Looped, EngineError> {
        let mut since: Option<Instant> = None;
        let mut told = false;
        let mut goes_on = |batches: usize| {
            let since = *since.get_or_insert_with(Instant::now);
            if !told && enough.is_met(batches, since.elapsed()) {
                told = true;
                self.content.fetch_add(1, Ordering::AcqRel);
            }
            let both = self.content.load(Ordering::Acquire) == 2;
            !both && !self.failed.load(Ordering::Acquire)
        };
        let mut begun = || {
            self.begun.fetch_add(1, Ordering::AcqRel);
            let failed = || self.failed.load(Ordering::Acquire);
            wait_until(|| self.begun.load(Ordering::Acquire) == 2 || failed());
            !failed()
        };
        let looped = run(side, &mut goes_on, &mut begun);
        if looped.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        looped
    }
}

/// Runs while `goes_on` says so of the number of batches that have ended. The first batch is under
/// way when `begun` is asked whether to go on at all; it is not counted, nor is the last, beside
/// which there may be nobody any more.
fn run(
    side: Side<'_>,
    goes_on: &mut dyn FnMut(usize) -> bool,
    begun: &mut dyn FnMut() -> bool,
) -> Result<Looped, EngineError> {
    let Side { session, batch } = side;
    let mut begin = || {
        let begun = session.begin(batch);
        begun.unwrap_or_else(|| Err(EngineError::Run("takes no batches ahead".to_owned())))
    };
    let mut running = begin()?;
    let (mut took, mut start, mut last) = (Vec::new(), None, None);
    let mut wanted = begun();
    while wanted {
        let next = begin()?;
        let ended = running.wait()?;
        running = next;
        let now = Instant::now();
        match start {
            None => start = Some(now),
            Some(_) => {
                took.push(ended.took);
                last = Some(now);
            }
        }
        wanted = goes_on(took.len());
    }
    running.wait()?;
    let wall = match (start, last) {
        (Some(start), Some(last)) => Span(last.duration_since(start).as_nanos() as u64),
        _ => Span::ZERO,
    };
    Ok(Looped { took, wall })
}

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        thread::sleep(Duration::from_micros(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::fake::seats;
    use crate::gpu::subject::Subject;

    fn spans(ms: impl IntoIterator<Item = u64>) -> Vec<Span> {
        ms.into_iter().map(|ms| Span(ms * 1_000_000)).collect()
    }

    #[test]
    fn quantiles_are_of_what_was_seen() {
        let looped = Looped { took: spans((1..=100).rev()), wall: Span(200_000_000) };
        assert_eq!(looped.median(), Span(50_000_000));
        assert_eq!(looped.tail(), Span(99_000_000));
        assert_eq!(looped.period(), Span(2_000_000));
        let few = Looped { took: spans([3, 1, 2]), wall: Span::ZERO };
        assert_eq!((few.median(), few.tail()), (Span(2_000_000), Span(3_000_000)));
        assert_eq!(Looped::default().median(), Span::ZERO);
        assert_eq!(Looped::default().period(), Span::ZERO);
    }

    #[test]
    fn a_loop_runs_until_it_is_enough_and_no_longer_than_it_may() {
        let seat = seats(1).remove(0);
        let load = || Subject::load(&seat, "100-50-0-0".as_ref(), 32, 1).unwrap();
        let enough = Enough { batches: 9, time: Duration::ZERO, at_most: Duration::from_secs(10) };
        let looped = alone(load().side(8), enough).unwrap();
        assert_eq!(looped.took.len(), 9);
        assert!(looped.took.iter().all(|&took| took == Span::from_ms(0.5)));
        let bounded = Enough { batches: usize::MAX, at_most: Duration::ZERO, ..enough };
        assert_eq!(alone(load().side(8), bounded).unwrap().took.len(), 2);
    }
}
