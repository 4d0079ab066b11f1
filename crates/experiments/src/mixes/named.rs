//! The four named mixes, and what is asked of the default policy on them.

use fermata_dispatch::Policy;
use fermata_files::InputError;

use crate::measured::MeasuredZoo;
use crate::trials::mixes::{Mix, ZooModel};

/// A mix that is measured on several numbers of executors.
pub(super) struct NamedMix {
    /// Its models with their objectives, for people.
    pub(super) title: &'static str,
    /// Its models by the names of their profiles, with their objectives in milliseconds.
    models: &'static [(&'static str, f64)],
    /// The goodput that is asked, by number of executors.
    pub(super) asked: [f64; EXECUTORS.len()],
}

/// The numbers of executors.
pub(super) const EXECUTORS: [usize; 3] = [1, 2, 8];

/// The four mixes. Requests come at equal rates to each model.
pub(super) const NAMED: [NamedMix; 4] = [
    NamedMix {
        title: "MobileNetV2 3 ms, ResNet152 50 ms",
        models: &[("mobilenetv2", 3.0), ("resnet152", 50.0)],
        asked: [3_950.0, 11_700.0, 66_700.0],
    },
    NamedMix {
        title: "LeNet 2 ms, ResNet152 30 ms",
        models: &[("lenet", 2.0), ("resnet152", 30.0)],
        asked: [4_620.0, 12_450.0, 87_700.0],
    },
    NamedMix {
        title: "BERT (32 tokens) 3 ms, VGG16 50 ms",
        models: &[("bert_short", 3.0), ("vgg16", 50.0)],
        asked: [7_700.0, 19_400.0, 103_000.0],
    },
    NamedMix {
        title: "ResNet50 3 ms, MobileNetV2 10 ms, ResNet152 50 ms",
        models: &[("resnet50", 3.0), ("mobilenetv2", 10.0), ("resnet152", 50.0)],
        asked: [3_680.0, 11_500.0, 72_700.0],
    },
];

/// A named mix on a number of executors.
pub(super) struct Case {
    /// Which of the named mixes.
    pub(super) named: &'static NamedMix,
    /// The mix.
    pub(super) mix: Mix,
    /// The goodput that is asked.
    pub(super) asked: f64,
}

/// The named mixes on each of these numbers of executors.
pub(super) fn cases(
    zoo: &MeasuredZoo,
    executors: &[usize],
    seed: u64,
) -> Result<Vec<Case>, InputError> {
    let mut cases = Vec::new();
    for named in &NAMED {
        let find = |&(name, slo_ms): &(&str, f64)| Ok((zoo.find(name)?, slo_ms));
        let models: Result<Vec<(&ZooModel, f64)>, InputError> =
            named.models.iter().map(find).collect();
        let models = models?;
        for (&count, asked) in EXECUTORS.iter().zip(named.asked) {
            if executors.contains(&count) {
                cases.push(Case { named, mix: Mix::even(&models, count, seed), asked });
            }
        }
    }
    Ok(cases)
}

/// A policy by its name, which is ours: a wrong one is a mistake of this program.
pub(super) fn policy(name: &str) -> Policy {
    name.parse().expect("an experiment names policies that exist")
}
