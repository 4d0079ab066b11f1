//! Small models at tight objectives: goodput with the GPU cut into shares, against all of them taking turns on the whole.

use fermata_core::Span;
use fermata_onnx::zoo::Net;
use fermata_server::gpu::NETWORK;
use fermata_sim::symphony::Meter;
use serde::Serialize;

use super::child::{Server, load};
use super::expected::{Asked, simulated};
use super::serve::profile;
use super::{Bench, met, write_json, zoo};
use crate::bench::document::{Section, Table, figure};
use crate::chart::{Axis, BarSeries, Bars, grouped};
use crate::input::MeasuredFile;

/// The models.
const NETS: [Net; 3] = [Net::LeNet, Net::MobileNetV2, Net::BertShort];
/// Their objectives.
const SLO_MS: [f64; 3] = [3.0, 3.0, 3.5];
/// How the GPU is cut; the first is time sharing.
const CUTS: [&[u32]; 3] = [&[100], &[50, 50], &[33, 33, 34]];
/// What is asked for: so much more with shares.
const MORE: f64 = 0.30;
/// How long each rate is tried, in milliseconds, and how often before it is too much: at such objectives, one pause of a few milliseconds is enough to
/// spoil a second, and there are pauses on machines that share their processors with others.
const TIME: f64 = 500.0;
const TRIES: &str = "3";
/// Where the search begins, of what is simulated.
const NEAR: f64 = 0.45;

/// How much is asked of each model, in their order.
struct Scene {
    name: &'static str,
    weights: [f64; 3],
}

const SCENES: [Scene; 3] = [
    Scene { name: "even", weights: [1.0, 1.0, 1.0] },
    Scene { name: "images", weights: [1.0, 3.0, 1.0] },
    Scene { name: "text", weights: [1.0, 1.0, 3.0] },
];

/// What was found for one scenario on one cut.
#[derive(Clone, Debug, Serialize)]
struct Found {
    scenario: &'static str,
    shares: Vec<u32>,
    goodput_rps: f64,
    simulated_rps: f64,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    bench.progress.expect(1 + SCENES.len() * CUTS.len());
    let profiles: Vec<MeasuredFile> =
        NETS.iter().map(|&net| profile(rig, net)).collect::<anyhow::Result<_>>()?;
    rig.release();
    let asked: Vec<(Net, f64)> = NETS.into_iter().zip(SLO_MS).collect();
    let repository = zoo::repository(&rig.models, "mix", &asked)?;
    let most = CUTS.iter().map(|cut| cut.len()).max().unwrap_or(1).to_string();
    let server = Server::start(rig, &repository, &["--seats", &most, "--shares", "100"])?;
    bench.progress.finish_one();
    let mut all = Vec::new();
    // What is compared is measured soon after each other.
    for scene in &SCENES {
        for cut in CUTS {
            server.recut(rig.device.index, cut)?;
            let simulated_rps = scene.simulated(&profiles, cut, rig.seed)?;
            let duration = format!("{}ms", rig.time(TIME).as_millis().max(200));
            let mut arguments = vec![server.grpc.clone()];
            arguments.extend(scene.models(NEAR * simulated_rps));
            let options = ["--goodput", "--tries", TRIES, "--warmup", "200ms", "--threads", "4"];
            arguments.extend(options.map(str::to_owned));
            arguments.extend(["--duration".to_owned(), duration]);
            let goodput_rps = load(&arguments)?.goodput_rps.unwrap_or(0.0);
            let (scenario, shares) = (scene.name, cut.to_vec());
            all.push(Found { scenario, shares, goodput_rps, simulated_rps });
            // What was found stays, whatever becomes of the next cut.
            write_json(bench, "mix", &all)?;
            bench.progress.finish_one();
        }
    }
    drop(server);
    Ok(section(&all))
}

impl Scene {
    /// What the simulator finds on a cut whose shares do not disturb each other.
    fn simulated(&self, profiles: &[MeasuredFile], cut: &[u32], seed: u64) -> anyhow::Result<f64> {
        let mut asked = Vec::new();
        for (at, profile) in profiles.iter().enumerate() {
            asked.push(Asked {
                latencies: profile.medians().map_err(anyhow::Error::msg)?,
                slo: Span::from_ms(SLO_MS[at]),
                weight: self.weights[at],
            });
        }
        Ok(simulated(&asked, cut, NETWORK, seed))
    }

    /// The models as `fermata load` takes them, with a rate for all together.
    fn models(&self, rate: f64) -> Vec<String> {
        let all: f64 = self.weights.iter().sum();
        // A search that begins at nothing would find nothing.
        let rate = rate.clamp(100.0, 1e6);
        let model = |(at, net): (usize, &Net)| {
            format!("{net}={:.1}@{}", rate * self.weights[at] / all, SLO_MS[at])
        };
        NETS.iter().enumerate().map(model).collect()
    }
}

/// The goodput of a scenario with time sharing, and the best cut with its own.
fn compare(of: &[&Found]) -> Option<(f64, Found)> {
    let time = of.iter().find(|found| found.shares.len() == 1)?.goodput_rps;
    let cuts = of.iter().filter(|found| found.shares.len() > 1);
    let best = cuts.max_by(|a, b| a.goodput_rps.total_cmp(&b.goodput_rps))?;
    Some((time, (*best).clone()))
}

fn section(all: &[Found]) -> Section {
    let mut section = Section::default();
    section.say(format!(
        "{} on one server, SLO {} ms, every executor with all models, Poisson arrivals over gRPC. *Time sharing* is one executor with the whole GPU; with shares, each is \
         an executor. Goodput in requests a second of all models together, each rate tried up to {TRIES} times, in brackets what `fermata sim` finds for shares as far away that do not disturb each other.",
        NETS.map(|net| net.describe().to_owned()).join(", "),
        SLO_MS.map(|slo| slo.to_string()).join(", "),
    ));
    let cut_name = |shares: &[u32]| {
        let parts: Vec<String> = shares.iter().map(u32::to_string).collect();
        if shares.len() == 1 { "time sharing".to_owned() } else { parts.join("+") }
    };
    let head = ["scenario".to_owned(), "rates".to_owned()].into_iter();
    let head = head.chain(CUTS.map(cut_name));
    let mut table = Table::new(head.chain(["best shares".to_owned(), "met".to_owned()]));
    let mut gains = Vec::new();
    for scene in &SCENES {
        let of: Vec<&Found> = all.iter().filter(|found| found.scenario == scene.name).collect();
        let Some((time, best)) = compare(&of) else { continue };
        let gain = best.goodput_rps / time.max(f64::MIN_POSITIVE) - 1.0;
        gains.push(gain);
        let cell = |cut: &[u32]| {
            let found = of.iter().find(|found| found.shares == cut);
            found.map_or("-".to_owned(), |found| {
                let (measured, simulated) = (found.goodput_rps, found.simulated_rps);
                format!("{} ({})", grouped(measured, 0), grouped(simulated, 0))
            })
        };
        let rates = scene.weights.map(|weight| weight.to_string()).join(" : ");
        let cells = [scene.name.to_owned(), rates].into_iter();
        let verdict = [format!("{:+.1} %", 100.0 * gain), met(gain >= MORE).to_owned()];
        table.add(cells.chain(CUTS.map(cell)).chain(verdict));
    }
    section.say(table.markdown());
    if !gains.is_empty() {
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        section.say(format!(
            "With the best cut {:+.1} % on average (at least {:+.0} %, gpulet: +61.7 % on its GPUs): {}.",
            100.0 * mean,
            100.0 * MORE,
            met(mean >= MORE)
        ));
    }
    section.show("mix", "goodput by scenario and cut", picture(all, &cut_name));
    section
}

fn picture(all: &[Found], cut_name: &dyn Fn(&[u32]) -> String) -> String {
    let series = CUTS.map(|cut| BarSeries {
        name: cut_name(cut),
        values: SCENES
            .iter()
            .map(|scene| {
                let same = |found: &&Found| found.scenario == scene.name && found.shares == cut;
                all.iter().find(same).map_or(f64::NAN, |found| found.goodput_rps)
            })
            .collect(),
    });
    let bars = Bars {
        title: "Goodput of all models together".to_owned(),
        x_title: "scenario".to_owned(),
        y: Axis::from_zero("requests a second"),
        groups: SCENES.iter().map(|scene| scene.name.to_owned()).collect(),
        series: series.into(),
        values: None,
    };
    figure("Small models at tight SLOs", "one GPU", vec![(380.0, vec![Box::new(bars)])])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shares: &[u32], goodput_rps: f64) -> Found {
        Found { scenario: "even", shares: shares.to_vec(), goodput_rps, simulated_rps: 1.0 }
    }

    #[test]
    fn the_best_cut_is_compared_with_time_sharing() {
        let all = [found(&[100], 1000.0), found(&[50, 50], 1400.0)];
        let text = section(&all).body;
        assert!(text.contains("| +40.0 % | yes |"), "{text}");
        assert!(text.contains("| - |"), "what was not measured is not made up: {text}");
        let (time, best) = compare(&all.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((time, best.shares), (1000.0, vec![50, 50]));
        assert!(compare(&[]).is_none());
    }

    #[test]
    fn rates_are_given_in_proportion() {
        let models = SCENES[2].models(500.0);
        assert_eq!(models, ["lenet=100.0@3", "mobilenetv2=100.0@3", "bert_short=300.0@3.5"]);
        assert!(SCENES[0].models(0.0)[0].starts_with("lenet=33.3@"));
    }
}
