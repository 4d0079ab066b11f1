//! Mixes drawn at random.

use fermata_core::Span;
use fermata_workload::{Popularity, Process};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Member, Mix, SLO_MAX_MS, ZooModel};

/// The models that mixes are drawn from, by the device on which they were measured.
pub type Zoos = Vec<Vec<ZooModel>>;

/// An objective is at least this many times what a request takes alone.
const ALONE_TIMES: f64 = 2.2;
/// It is also at least this many times what a request takes that waits for the longest batch of one
/// request on one of the executors.
const WAITING_TIMES: f64 = 1.5;

/// The mix with this seed: 2 to 6 models of one device, or of all devices together, on 1, 2, 4 or 8
/// executors, with log-uniform objectives, equal or Zipf rates, and Poisson or bursty arrivals.
pub fn draw(zoos: &Zoos, seed: u64) -> Mix {
    let mut random = Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let zoo = random.random_range(0..=zoos.len());
    let from: Vec<&ZooModel> = match zoos.get(zoo) {
        Some(one) => one.iter().collect(),
        None => zoos.iter().flatten().collect(),
    };
    let executors = [1, 2, 4, 8][random.random_range(0..4)];
    let count = random.random_range(2..=6);
    let process = if random.random_bool(0.5) { Process::Poisson } else { Process::Gamma(0.2) };
    let popularity =
        if random.random_bool(0.5) { Popularity::Equal } else { Popularity::Zipf(0.9) };
    let models: Vec<&ZooModel> =
        (0..count).map(|_| from[random.random_range(0..from.len())]).collect();
    let longest = models.iter().map(|model| alone_ms(model)).fold(0.0, f64::max);
    let shares = popularity.shares(count);
    let members = models.iter().zip(shares).map(|(model, share)| {
        let alone = alone_ms(model);
        let (low, high) = (ALONE_TIMES * alone, SLO_MAX_MS.max(ALONE_TIMES * alone));
        let drawn = (low.ln() + random.random::<f64>() * (high.ln() - low.ln())).exp();
        let slo_ms = drawn.max(WAITING_TIMES * (alone + longest / executors as f64));
        // Rounded to a microsecond, so that the objective that is printed is the one that was run.
        let slo = Span((slo_ms * 1e3).ceil() as u64 * 1000);
        Member { name: model.name.clone(), profile: model.profile.clone(), slo, share }
    });
    Mix { members: members.collect(), executors, process, seed }
}

/// What a batch of one request takes, in milliseconds.
fn alone_ms(model: &ZooModel) -> f64 {
    model.profile.shortest().as_ms()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::symphony::{zoo_1080ti, zoo_a100};

    #[test]
    fn a_seed_is_a_mix_with_objectives_that_can_be_met() {
        let zoos: Zoos = [zoo_1080ti(), zoo_a100()]
            .iter()
            .map(|zoo| zoo.iter().map(ZooModel::linear).collect())
            .collect();
        let mut names = std::collections::BTreeSet::new();
        for seed in 1..200 {
            let mix = draw(&zoos, seed);
            assert_eq!(mix.name(), draw(&zoos, seed).name());
            assert!((2..=6).contains(&mix.members.len()) && [1, 2, 4, 8].contains(&mix.executors));
            assert!(
                (mix.members.iter().map(|member| member.share).sum::<f64>() - 1.0).abs() < 1e-9
            );
            for member in &mix.members {
                assert!(member.slo.as_ms() >= ALONE_TIMES * member.profile.shortest().as_ms());
            }
            names.insert(mix.name());
        }
        assert_eq!(names.len(), 199, "two seeds gave the same mix");
    }
}
