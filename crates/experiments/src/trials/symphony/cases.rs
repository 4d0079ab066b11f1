//! The experiments that ask for the goodput, or the fewest executors, of a list of pools.

use fermata_core::Span;
use fermata_workload::{Popularity, Process};

use super::model::{Model, find, zoo_1080ti, zoo_a100};
use super::pool::Pool;

/// One pool of an experiment.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it is, within its experiment.
    pub name: String,
    /// In which panel of the picture it is.
    pub panel: String,
    /// Where on its panel.
    pub x: f64,
    /// What is measured.
    pub pool: Pool,
    /// What the paper found.
    pub paper: Paper,
}

/// What the paper prints about a case. What it only draws is not here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paper {
    /// Numbers, by the name of our policy that stands for the paper's system.
    pub numbers: &'static [(&'static str, f64)],
    /// Symphony over the best of its baselines; where a range is printed, its lower end.
    pub factor: Option<f64>,
    /// Words.
    pub words: &'static str,
}

impl Case {
    fn new(name: impl Into<String>, panel: impl Into<String>, x: f64, pool: Pool) -> Self {
        Self { name: name.into(), panel: panel.into(), x, pool, paper: Paper::default() }
    }

    fn words(self, words: &'static str) -> Self {
        Self { paper: Paper { words, ..self.paper }, ..self }
    }

    fn factor(self, factor: f64) -> Self {
        Self { paper: Paper { factor: Some(factor), ..self.paper }, ..self }
    }

    fn numbers(self, numbers: &'static [(&'static str, f64)]) -> Self {
        Self { paper: Paper { numbers, ..self.paper }, ..self }
    }
}

/// Two single models on 8 executors.
pub fn table2() -> Vec<Case> {
    let case = |model: Model| {
        let name = format!("{}, SLO {} ms", model.name, model.slo_ms);
        Case::new(name, model.name.clone(), 8.0, Pool::alike(&model, 1, 8))
    };
    vec![
        case(Model::resnet50(25.0)).numbers(&[
            ("deferred", 5264.0),
            ("clockwork", 1358.0),
            ("nexus", 4027.0),
            ("shepherd", 4445.0),
        ]),
        case(Model::inception_resnet(70.0)).numbers(&[
            ("deferred", 926.0),
            ("clockwork", 458.0),
            ("nexus", 618.0),
            ("shepherd", 778.0),
        ]),
    ]
}

/// Eager against deferred as batching gains more: alpha 1 ms, beta 1 to 15 ms, SLO 2 l(8).
pub fn figure6a() -> Vec<Case> {
    let case = |beta: u32| {
        let beta_ms = f64::from(beta);
        let model = Model::new("synthetic", 1.0, beta_ms, 2.0 * (8.0 + beta_ms));
        let name = format!("beta/alpha {beta}");
        let case = Case::new(name, "10 models, 32 GPUs", beta_ms, Pool::alike(&model, 10, 32));
        match beta {
            1 => case.words("eager nearly the same as deferred"),
            _ => case,
        }
    };
    (1..=15).map(case).collect()
}

/// Timeouts against deferred.
pub fn figure6b() -> Vec<Case> {
    let single = Pool::alike(&Model::resnet50(50.0), 1, 8);
    vec![
        Case::new("ResNet50, SLO 50 ms, 8 GPUs", "ResNet50, SLO 50 ms, 8 GPUs", 0.0, single)
            .words("best timeout the same as deferred"),
        Case::new("A100 zoo, 64 GPUs", "A100 zoo, 64 GPUs", 0.0, Pool::new(zoo_a100(), 64))
            .words("every timeout much lower than deferred"),
    ]
}

/// Models with `beta / alpha` above this gain much by batching (Symphony 5.1).
const STRONG: f64 = 2.0;

/// Both zoos, whole and divided by how much they gain by batching, on 64 executors.
pub fn figure9() -> Vec<Case> {
    let mixed = ("Mixed", "Symphony 2.0-2.4x the baselines", 2.0);
    let strong = |words, factor| ("Strong", words, factor);
    let weak = |words, factor| ("Weak", words, factor);
    let older = [
        mixed,
        strong("Symphony 3.5x the baselines", 3.5),
        weak("Symphony 23 % above the baselines", 1.23),
    ];
    let newer = [
        mixed,
        strong("Symphony 5.7x the baselines", 5.7),
        weak("Symphony 10 % above the baselines", 1.1),
    ];
    let mut cases = Vec::new();
    for (zoo, models, kinds) in [("1080Ti", zoo_1080ti(), older), ("A100", zoo_a100(), newer)] {
        for (kind, words, factor) in kinds {
            let kept = models.iter().filter(|model| match kind {
                "Strong" => model.batching_effect() > STRONG,
                "Weak" => model.batching_effect() < STRONG,
                _ => true,
            });
            let pool = Pool::new(kept.cloned().collect(), 64);
            let case = Case::new(format!("{zoo} {kind}"), zoo, 0.0, pool);
            cases.push(case.words(words).factor(factor));
        }
    }
    cases
}

/// 15,000 requests a second on as few A100 as possible.
pub fn figure10() -> Vec<Case> {
    let single = find(&zoo_a100(), "ResNet50").with_slo(25.0);
    vec![
        Case::new("ResNet50, SLO 25 ms", "", 0.0, Pool::alike(&single, 1, 1))
            .words("Nexus and Shepherd 2 to 6 GPUs more than Symphony; Clockwork more than double"),
        Case::new("A100 zoo", "", 1.0, Pool::new(zoo_a100(), 1))
            .words("Nexus 166 % and Shepherd 90 % more GPUs than Symphony; Clockwork cannot"),
    ]
}

/// Twenty models like ResNet50 on 32 executors, by SLO, popularity and burstiness.
pub fn figure11() -> Vec<Case> {
    let mut cases = Vec::new();
    for (popularity, spread) in
        [(Popularity::Equal, "equal popularity"), (Popularity::Zipf(0.9), "Zipf 0.9")]
    {
        for (process, bursts) in
            [(Process::Poisson, "Poisson"), (Process::Gamma(0.05), "Gamma 0.05")]
        {
            for slo_ms in [15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 75.0, 100.0] {
                let pool = Pool::alike(&Model::resnet50(slo_ms), 20, 32);
                let pool = Pool { popularity, process, ..pool };
                let panel = format!("{spread}, {bursts}");
                cases.push(Case::new(format!("{panel}, {slo_ms} ms"), panel, slo_ms, pool));
            }
        }
    }
    cases
}

/// Twenty models like ResNet50, SLO 100 ms, on ever more executors.
pub fn figure13() -> Vec<Case> {
    let case = |executors: usize| {
        let pool = Pool::alike(&Model::resnet50(100.0), 20, executors);
        let case = Case::new(format!("{executors} GPUs"), "", executors as f64, pool);
        match executors {
            16 => case.words("Symphony linear in GPUs; Clockwork limited by its locks"),
            _ => case,
        }
    };
    [16, 32, 64, 128, 256, 512].map(case).into()
}

/// Twenty models like ResNet50 on 32 executors, by SLO and by the way from the scheduler to the
/// executors.
pub fn figure14() -> Vec<Case> {
    let near = [0.0, 0.02, 0.033, 0.05, 0.075, 0.1];
    let far = [0.0, 1.0, 3.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0];
    let mut cases = Vec::new();
    for (range, delays_ms, words) in [
        ("RDMA range", &near[..], "marginal loss"),
        ("TCP range", &far[..], "up to 70 % lost; most with tight SLOs"),
    ] {
        for slo_ms in [20.0, 25.0, 50.0, 100.0] {
            for &delay_ms in delays_ms {
                let mut pool = Pool::alike(&Model::resnet50(slo_ms), 20, 32);
                pool.network.ctrl = Span::from_ms(delay_ms);
                let delay = match delay_ms < 1.0 {
                    true => format!("{:.0} us", 1e3 * delay_ms),
                    false => format!("{delay_ms} ms"),
                };
                let name = format!("{range}, SLO {slo_ms} ms, {delay}");
                let case = Case::new(name, range, delay_ms, pool);
                let last = delays_ms.last() == Some(&delay_ms);
                cases.push(if last { case.words(words) } else { case });
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_the_sizes_of_the_paper_and_names_of_their_own() {
        let experiments = [
            (table2(), 2),
            (figure6a(), 15),
            (figure6b(), 2),
            (figure9(), 6),
            (figure10(), 2),
            (figure11(), 32),
            (figure13(), 6),
            (figure14(), 60),
        ];
        for (cases, count) in experiments {
            assert_eq!(cases.len(), count);
            let mut names: Vec<&str> = cases.iter().map(|case| &case.name[..]).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{names:?}");
        }
    }

    #[test]
    fn strong_and_weak_models_make_up_the_zoo() {
        for half in figure9().chunks(3) {
            let count = |at: usize| half[at].pool.models.len();
            assert_eq!(count(0), count(1) + count(2));
            assert!(count(2) > 3);
        }
    }
}
