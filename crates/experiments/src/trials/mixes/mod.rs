//! Mixes: several models with different objectives on few executors, named or drawn at random, and
//! the goodput of the default policy on them against the best of the other policies.

mod changes;
mod draw;
mod drawn;
mod overload;
mod rivals;

use std::sync::Arc;

use fermata_core::{ClassId, Profile, Span};
use fermata_dispatch::{ModelSpec, Network};
use fermata_plan::staggered_load;
use fermata_sim::{Arrivals, End, Load, Scenario};
use fermata_workload::{Gaps, Process, Rate};

use crate::trials::symphony::Model;
pub use changes::{AfterChange, Change, after_change};
pub use draw::{Zoos, draw};
pub use drawn::{DrawnMix, Goodput};
pub use overload::{Overload, overload};
pub use rivals::{BestRival, Rival, limited_rivals, rivals};

/// A model without an objective, as a zoo has it.
#[derive(Clone, Debug)]
pub struct ZooModel {
    /// Its name.
    pub name: String,
    /// How long its batches take.
    pub profile: Profile,
}

/// A model of a mix.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// How long its batches take.
    pub profile: Profile,
    /// Its objective.
    pub slo: Span,
    /// Its share of all requests.
    pub share: f64,
}

/// Models that share executors.
#[derive(Clone, Debug)]
pub struct Mix {
    /// The models.
    pub members: Vec<Member>,
    /// How many executors there are.
    pub executors: usize,
    /// How requests are spread over time.
    pub process: Process,
    /// The seed of the arrivals.
    pub seed: u64,
}

/// The longest objective of a mix, and so the longest batch of a linear profile.
const SLO_MAX_MS: f64 = 200.0;
/// A run has at least this many requests of its rarest model: a hundredth of them is 800, which
/// chance moves by a tenth where they come in bursts. With a quarter of that the best of many
/// policies is often the luckiest: played other requests, it loses its lead.
const RAREST_REQUESTS_MIN: f64 = 80_000.0;
/// A run has between these numbers of requests of all models, unless the longest objective asks for
/// more.
const REQUESTS_MIN: f64 = 480_000.0;
const REQUESTS_MAX: f64 = 3_200_000.0;
/// A run lasts at least this many times the longest objective.
const SLOS_MIN: f64 = 160.0;
/// A longer table of gaps begins again: by then every model is at another place of its own table.
const TABLE_MAX: usize = 1 << 19;
/// The share of `Mix::bound` near which goodputs are searched for.
const LIKELY_SHARE: f64 = 0.6;

impl ZooModel {
    /// A model of Symphony's tables, with batches up to the longest objective of a mix.
    pub fn linear(model: &Model) -> Self {
        let ms = Span::from_ms;
        let profile = Profile::linear(ms(model.alpha_ms), ms(model.beta_ms), ms(SLO_MAX_MS));
        Self { name: model.name.clone(), profile: profile.expect("a batch takes some time") }
    }
}

impl Mix {
    /// Models with these objectives, in milliseconds, at equal rates, as Poisson processes.
    pub fn even(models: &[(&ZooModel, f64)], executors: usize, seed: u64) -> Self {
        let share = 1.0 / models.len() as f64;
        let member = |&(model, slo_ms): &(&ZooModel, f64)| Member {
            name: model.name.clone(),
            profile: model.profile.clone(),
            slo: Span::from_ms(slo_ms),
            share,
        };
        let members = models.iter().map(member).collect();
        Self { members, executors, process: Process::Poisson, seed }
    }

    /// What it is, in one line.
    pub fn name(&self) -> String {
        let models = self.members.iter().map(|member| {
            format!("{} {:.1} ms {:.0} %", member.name, member.slo.as_ms(), 100.0 * member.share)
        });
        let models: Vec<String> = models.collect();
        format!("{} on {}, {}", models.join(", "), self.executors, self.process)
    }

    /// The same with no batch longer than `longest`, except batches of one request.
    pub fn limited(&self, longest: Span) -> Self {
        let mut limited = self.clone();
        for member in &mut limited.members {
            let sizes = member.profile.largest_within(longest).max(1);
            let table = (1..=sizes).map(|size| member.profile.latency(size));
            member.profile = Profile::from_table(table).expect("a part of a sound profile");
        }
        limited
    }

    /// The shortest objective.
    pub fn tightest(&self) -> Span {
        self.members.iter().map(|member| member.slo).min().unwrap_or_default()
    }

    /// The longest objective.
    pub fn longest_slo(&self) -> Span {
        self.members.iter().map(|member| member.slo).max().unwrap_or_default()
    }

    /// The rate of staggered execution if no model stood in the way of another, in requests a
    /// second.
    pub fn bound(&self) -> f64 {
        let demand = |rate: f64| -> f64 {
            let load =
                |member: &Member| staggered_load(&member.profile, member.slo, rate * member.share);
            self.members.iter().map(load).sum()
        };
        let executors = self.executors as f64;
        let mut high = 1.0;
        while demand(high) <= executors {
            high *= 2.0;
        }
        let mut low = high / 2.0;
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if demand(middle) <= executors { low = middle } else { high = middle }
        }
        low
    }

    /// A rate near which goodputs are likely to be, in requests a second.
    pub fn likely_rate(&self) -> f64 {
        LIKELY_SHARE * self.bound()
    }

    /// How many requests a run needs to tell a hundredth of the rarest model's requests.
    pub fn requests(&self) -> u64 {
        let least = self.members.iter().map(|member| member.share).fold(1.0, f64::min);
        let wanted = (RAREST_REQUESTS_MIN / least).clamp(REQUESTS_MIN, REQUESTS_MAX);
        wanted.max(SLOS_MIN * self.longest_slo().as_secs() * self.likely_rate()) as u64
    }

    /// A run of `requests` requests at a total rate.
    pub fn scenario(&self, rate: f64, requests: u64) -> Scenario {
        let loads = (0..).zip(&self.members).map(|(number, member)| {
            let expected = requests as f64 * member.share;
            // A model may have a few more than expected before all have arrived.
            let gaps = (expected + 6.0 * expected.sqrt() + 100.0) as usize;
            let table = Gaps::new(self.process, self.seed, number).table(gaps.min(TABLE_MAX));
            let arrivals = Arrivals::Table(table, Rate::Constant(rate * member.share));
            Load::new(Arc::new(member.spec()), arrivals)
        });
        self.scenario_of(loads.collect(), End::Requests(requests))
    }

    /// A run with these loads, one for each model.
    fn scenario_of(&self, loads: Vec<Load>, end: End) -> Scenario {
        Scenario {
            loads,
            executors: vec![ClassId(0); self.executors],
            network: Network::default(),
            end,
            seed: self.seed,
            noise: 0.0,
            faults: Vec::new(),
        }
    }
}

impl Member {
    /// What dispatch is told of it.
    fn spec(&self) -> ModelSpec {
        ModelSpec::uniform(self.slo, self.profile.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fermata_core::{Request, Time};
    use fermata_dispatch::{Action, Policy};
    use fermata_sim::{Observer, simulate};

    use super::*;

    /// A model with `alpha = beta / 10` beside one that takes ten times as long.
    pub(super) fn two_models(executors: usize) -> Mix {
        let [short, long] = [("short", 0.02, 0.2), ("long", 0.2, 2.0)]
            .map(|(name, alpha, beta)| ZooModel::linear(&Model::new(name, alpha, beta, 0.0)));
        Mix::even(&[(&short, 5.0), (&long, 40.0)], executors, 1)
    }

    #[test]
    fn a_mix_says_what_it_is() {
        let mix = two_models(2);
        assert_eq!(mix.name(), "short 5.0 ms 50 %, long 40.0 ms 50 % on 2, poisson");
        assert_eq!((mix.tightest(), mix.longest_slo()), (Span::from_ms(5.0), Span::from_ms(40.0)));
    }

    #[test]
    fn no_batch_is_longer_than_the_limit_except_single_requests() {
        let limited = two_models(1).limited(Span::from_ms(1.0));
        let longest = |member: &Member| member.profile.latency(member.profile.max_batch());
        assert_eq!(longest(&limited.members[0]), Span::from_ms(1.0));
        assert_eq!(limited.members[1].profile.max_batch(), 1);
    }

    /// The models of which batches were limited, and for which ones.
    #[derive(Default)]
    struct Limits(BTreeSet<(u32, u32)>);

    impl Observer for Limits {
        fn action(&mut self, _now: Time, action: &Action, _batch: &[Request]) {
            if let Action::Limit { model, by } = *action {
                self.0.insert((model.0, by.0));
            }
        }
    }

    #[test]
    fn batches_of_the_long_model_are_limited_by_the_tight_one() {
        let mix = two_models(1);
        let scenario = mix.scenario(0.8 * mix.bound(), 20_000);
        let mut limits = Limits::default();
        let mut dispatcher = Policy::FERMATA.dispatcher(scenario.network);
        simulate(&scenario, &mut dispatcher, &mut limits, None);
        assert_eq!(limits.0, BTreeSet::from([(1, 0)]));
    }

    #[test]
    fn the_bound_grows_at_least_with_the_executors() {
        let [one, two, four] = [1, 2, 4].map(|executors| two_models(executors).bound());
        assert!(one > 0.0 && two >= 2.0 * one && four >= 2.0 * two, "{one} {two} {four}");
    }

    #[test]
    fn runs_have_enough_requests_of_the_rarest_model() {
        let mut mix = two_models(1);
        (mix.members[0].share, mix.members[1].share) = (0.95, 0.05);
        assert!(mix.requests() as f64 * 0.05 >= 0.999 * RAREST_REQUESTS_MIN);
        let scenario = mix.scenario(1000.0, 500);
        assert_eq!(scenario.end, End::Requests(500));
        assert!((scenario.rate() - 1000.0).abs() < 1e-6);
    }
}
