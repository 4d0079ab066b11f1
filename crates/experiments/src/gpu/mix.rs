//! Small models at tight objectives: goodput with the GPU cut into shares, against all of them
//! taking turns on the whole.

use fermata_chart::{Axis, BarSeries, Bars, grouped};
use fermata_core::Span;
use fermata_files::MeasuredFile;
use fermata_onnx::zoo::Net;
use serde::Serialize;

use super::child::{Server, load};
use super::expected::{Asked, simulated};
use super::rig::Rig;
use super::serve::profile;
use super::{Bench, met, write_json, zoo};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

/// The models.
const NETS: [Net; 3] = [Net::LeNet, Net::MobileNetV2, Net::BertShort];
/// Their objectives.
const SLO_MS: [f64; 3] = [3.0, 3.0, 3.5];
/// How the GPU may be cut: not at all, or in one of the other ways, of which what the simulator
/// finds best is measured.
const TIME_SHARING: &[u32] = &[100];
const CUTS: [&[u32]; 3] = [TIME_SHARING, &[50, 50], &[33, 33, 34]];
/// What is asked for: so much more with shares.
const MORE: f64 = 0.30;
/// How long each rate is tried, in milliseconds, and how often before it is too much: at such
/// objectives, one pause of a few milliseconds is enough to spoil a second, and there are pauses on
/// machines that share their processors with others.
const TIME: f64 = 700.0;
const TRIES: &str = "2";
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
    simulated_rps: f64,
    /// Of time sharing and the cut that the simulator finds best.
    goodput_rps: Option<f64>,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    bench.progress.expect(1 + SCENES.len() * 2);
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
        let mut cuts = scene.foretell(&profiles, rig)?;
        let best = best(&cuts);
        for at in [0, best] {
            server.recut(rig.device.index, &cuts[at].shares)?;
            let duration = format!("{}ms", rig.time(TIME).as_millis().max(200));
            let mut arguments = vec![server.grpc.clone()];
            arguments.extend(scene.models(NEAR * cuts[at].simulated_rps));
            let options = ["--goodput", "--tries", TRIES, "--warmup", "100ms", "--threads", "4"];
            arguments.extend(options.map(str::to_owned));
            arguments.extend(["--duration".to_owned(), duration]);
            cuts[at].goodput_rps = Some(load(&arguments)?.goodput_rps.unwrap_or(0.0));
            bench.progress.finish_one();
        }
        all.extend(cuts);
        // What was found stays, whatever becomes of the next scenario.
        write_json(bench, "mix", &all)?;
    }
    drop(server);
    Ok(section(&all))
}

/// Which of some cuts the simulator finds best, time sharing aside, which is the first.
fn best(cuts: &[Found]) -> usize {
    let by_rate = |&a: &usize, &b: &usize| cuts[a].simulated_rps.total_cmp(&cuts[b].simulated_rps);
    (1..cuts.len()).max_by(by_rate).unwrap_or(0)
}

impl Scene {
    /// What the simulator finds for time sharing and for each cut.
    fn foretell(&self, profiles: &[MeasuredFile], rig: &Rig) -> anyhow::Result<Vec<Found>> {
        let found = |cut: &[u32]| {
            let simulated_rps = self.simulated(profiles, cut, rig)?;
            let shares = cut.to_vec();
            Ok(Found { scenario: self.name, shares, simulated_rps, goodput_rps: None })
        };
        CUTS.into_iter().map(found).collect()
    }

    /// What the simulator finds on a cut whose shares do not disturb each other.
    fn simulated(&self, profiles: &[MeasuredFile], cut: &[u32], rig: &Rig) -> anyhow::Result<f64> {
        let mut asked = Vec::new();
        for (at, profile) in profiles.iter().enumerate() {
            asked.push(Asked {
                latencies: profile.medians().map_err(anyhow::Error::msg)?,
                slo: Span::from_ms(SLO_MS[at]),
                weight: self.weights[at],
            });
        }
        Ok(simulated(&asked, cut, rig.network, rig.seed))
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

/// What was measured for a scenario: time sharing, and the cut.
fn measured<'a>(all: &'a [Found], scene: &Scene) -> Option<(f64, &'a Found, f64)> {
    let mut of = all.iter().filter(|found| found.scenario == scene.name);
    // Of nothing there is no more.
    let time = of.next()?.goodput_rps.filter(|&rate| rate > 0.0)?;
    let cut = of.find(|found| found.goodput_rps.is_some())?;
    Some((time, cut, cut.goodput_rps?))
}

fn cut_name(shares: &[u32]) -> String {
    let parts: Vec<String> = shares.iter().map(u32::to_string).collect();
    if shares == TIME_SHARING { "time sharing".to_owned() } else { parts.join("+") }
}

fn section(all: &[Found]) -> Section {
    let mut section = Section::default();
    section.say(format!(
        "{} on one server, SLO {} ms, every executor with all models, Poisson arrivals over gRPC. \
         *Time sharing* is one executor with the whole GPU; with shares, each is \
         an executor. Goodput in requests a second of all models together, a rate being too much \
         if it was so in {TRIES} tries that were not disturbed (the lowest such rate is asked once \
         more in the end), for time sharing and for the cut that `fermata sim` finds best, whose \
         results are \
         in brackets: for shares as far away that do not disturb each other, without clients and \
         without pauses of the machine. Its requests have all of their SLO at the scheduler, \
         where a server keeps up to an eighth in reserve and client and protocol take their part.",
        NETS.map(|net| net.describe().to_owned()).join(", "),
        SLO_MS.map(|slo| slo.to_string()).join(", "),
    ));
    let head = ["scenario", "rates"].map(str::to_owned).into_iter();
    let head = head.chain(CUTS.map(cut_name));
    let mut table = Table::new(head.chain(["with shares", "met"].map(str::to_owned)));
    let mut gains = Vec::new();
    for scene in &SCENES {
        let Some((time, _, goodput)) = measured(all, scene) else { continue };
        let gain = goodput / time - 1.0;
        gains.push(gain);
        let cell = |cut: &[u32]| {
            let same = |found: &&Found| found.scenario == scene.name && found.shares == cut;
            let Some(found) = all.iter().find(same) else { return "-".to_owned() };
            let simulated = grouped(found.simulated_rps, 0);
            let measured = found.goodput_rps.map(|rate| grouped(rate, 0) + " ");
            format!("{}({simulated})", measured.unwrap_or_default())
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
            "With shares {:+.1} % on average (at least {:+.0} %, gpulet: +61.7 % on its GPUs): {}.",
            100.0 * mean,
            100.0 * MORE,
            met(mean >= MORE)
        ));
    }
    section.show("mix", "goodput by scenario", picture(all));
    section
}

fn picture(all: &[Found]) -> String {
    let series = |name: &str, value: &dyn Fn(&Scene) -> Option<f64>| BarSeries {
        name: name.to_owned(),
        values: SCENES.iter().map(|scene| value(scene).unwrap_or(f64::NAN)).collect(),
    };
    let group = |scene: &Scene| {
        let cut = measured(all, scene).map(|(_, cut, _)| cut_name(&cut.shares));
        cut.map_or(scene.name.to_owned(), |cut| format!("{}, {cut}", scene.name))
    };
    let bars = Bars {
        title: "Goodput of all models together".to_owned(),
        x_title: "scenario".to_owned(),
        y: Axis::from_zero("requests a second"),
        groups: SCENES.iter().map(group).collect(),
        series: vec![
            series("time sharing", &|scene| Some(measured(all, scene)?.0)),
            series("shares", &|scene| Some(measured(all, scene)?.2)),
        ],
        values: None,
    };
    figure("Small models at tight SLOs", "one GPU", vec![(380.0, vec![Box::new(bars)])])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shares: &[u32], simulated_rps: f64, goodput_rps: Option<f64>) -> Found {
        Found { scenario: "even", shares: shares.to_vec(), simulated_rps, goodput_rps }
    }

    #[test]
    fn the_cut_that_the_simulator_finds_best_is_compared_with_time_sharing() {
        let mut all = [
            found(TIME_SHARING, 9000.0, None),
            found(&[50, 50], 2000.0, None),
            found(&[33, 33, 34], 3000.0, None),
        ];
        assert_eq!(best(&all), 2, "time sharing is not one of them");
        assert!(!section(&all).body.contains("even"), "what was not measured is not made up");
        all[0].goodput_rps = Some(1000.0);
        all[2].goodput_rps = Some(1400.0);
        let text = section(&all).body;
        let row = "| 1,000 (9,000) | (2,000) | 1,400 (3,000) | +40.0 % | yes |";
        assert!(text.contains(row), "{text}");
        all[0].goodput_rps = Some(0.0);
        assert!(!section(&all).body.contains("inf"), "of nothing there is no more");
    }

    #[test]
    fn rates_are_given_in_proportion() {
        let models = SCENES[2].models(500.0);
        assert_eq!(models, ["lenet=100.0@3", "mobilenetv2=100.0@3", "bert_short=300.0@3.5"]);
        assert!(SCENES[0].models(0.0)[0].starts_with("lenet=33.3@"));
    }
}
