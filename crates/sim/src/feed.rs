//! The arrivals of all models in the order of time.

use fermata_core::{ModelId, Time};
use fermata_dispatch::MinTree;
use fermata_workload::Stream;

use crate::scenario::{End, Scenario};

/// All arrivals of a scenario, drawn and merged once: a search then runs them at many rates, under
/// many policies. Since all rates change together, so do all moments, and the order stays.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// Nanoseconds at the scenario's own rates, and the model.
    arrivals: Vec<(f64, u32)>,
    /// Until when they were drawn; the end of time, if a number of requests was asked for.
    until: Time,
}

impl Drawn {
    /// Draws the arrivals of a scenario, enough to run it at `factor` times its rates.
    pub fn new(scenario: &Scenario, factor: f64) -> Self {
        let end = match scenario.end {
            End::At(end) => End::At(Time((end.0 as f64 * factor) as u64)),
            End::Requests(requests) => End::Requests(requests),
        };
        let mut feed = Feed::live_until(scenario, end);
        let mut drawn = Self { arrivals: Vec::new(), until: end.time() };
        while feed.next() != Time::NEVER {
            let now = feed.next();
            drawn.arrivals.push((now.0 as f64, feed.pop().0));
        }
        drawn
    }

    /// The first `requests` of them.
    pub fn first(&self, requests: usize) -> Self {
        let arrivals = self.arrivals[..requests.min(self.arrivals.len())].to_vec();
        Self { arrivals, until: self.until }
    }

    /// Whether there are enough to run the scenario at `factor` times its rates.
    pub fn is_enough(&self, scenario: &Scenario, factor: f64) -> bool {
        match scenario.end {
            End::At(end) => end.0 as f64 * factor <= self.until.0 as f64,
            End::Requests(_) => true,
        }
    }

    /// Those that arrive before `end` with all rates multiplied by `factor`.
    pub(crate) fn before(&self, end: End, factor: f64) -> &[(f64, u32)] {
        let end = end.time().0 as f64 * factor;
        &self.arrivals[..self.arrivals.partition_point(|&(time, _)| time < end)]
    }
}

/// Where the arrivals of a run come from.
pub(crate) struct Feed<'a> {
    /// When the next request arrives; never, if none does.
    next: Time,
    kind: Kind<'a>,
}

/// Why there is a request to take.
const TAKEN: &str = "a request is taken only where there is one";

enum Kind<'a> {
    Drawn { arrivals: &'a [(f64, u32)], stretch: f64 },
    Live { streams: Vec<Stream>, times: MinTree, left: u64, end: Time },
}

impl<'a> Feed<'a> {
    /// Drawn arrivals with all rates multiplied by `factor`.
    pub(crate) fn drawn(arrivals: &'a [(f64, u32)], factor: f64) -> Self {
        let kind = Kind::Drawn { arrivals, stretch: 1.0 / factor };
        let mut feed = Self { next: Time::NEVER, kind };
        feed.update();
        feed
    }

    /// Arrivals drawn as they are needed.
    pub(crate) fn live(scenario: &Scenario) -> Self {
        Self::live_until(scenario, scenario.end)
    }

    fn live_until(scenario: &Scenario, end: End) -> Self {
        let loads = scenario.loads.iter().enumerate();
        let mut streams: Vec<Stream> =
            loads.map(|(at, load)| load.stream(scenario.seed, at)).collect();
        let mut times = MinTree::with_len(streams.len());
        for (at, stream) in streams.iter_mut().enumerate() {
            times.set(at, stream.next_arrival());
        }
        let (left, end) = (end.requests(), end.time());
        let mut feed = Self { next: Time::NEVER, kind: Kind::Live { streams, times, left, end } };
        feed.update();
        feed
    }

    /// When the next request arrives.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.next
    }

    /// Takes the next request: whom it is for.
    #[inline]
    pub(crate) fn pop(&mut self) -> ModelId {
        let model = match &mut self.kind {
            Kind::Drawn { arrivals, .. } => {
                let (&(_, model), rest) = arrivals.split_first().expect(TAKEN);
                *arrivals = rest;
                model
            }
            Kind::Live { streams, times, left, .. } => {
                let at = times.first().expect(TAKEN);
                times.set(at, streams[at].next_arrival());
                *left -= 1;
                at as u32
            }
        };
        self.update();
        ModelId(model)
    }

    #[inline]
    fn update(&mut self) {
        self.next = match &self.kind {
            Kind::Drawn { arrivals, stretch } => match arrivals.first() {
                Some((time, _)) => Time((time * stretch) as u64),
                None => Time::NEVER,
            },
            Kind::Live { times, left, end, .. } => match times.earliest() {
                time if *left > 0 && time < *end => time,
                _ => Time::NEVER,
            },
        };
    }
}
