//! The worked examples of the papers, which must come out exactly.

use fermata_core::{Profile, Span};
use fermata_plan::query::{Budget, Query, Stage, even_split, split};
use fermata_plan::{Turn, shortest_round};

use super::Bench;
use super::oracle::every_batch;
use crate::document::{Section, Table};
use crate::trials::symphony::{find, zoo_1080ti};

/// All of them.
pub(super) fn run(_bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    rounds(&mut section);
    two_models(&mut section);
    traffic(&mut section);
    Ok(section)
}

/// Nexus 4.1: table 2, and the two pairs that the text tries.
fn rounds(section: &mut Section) {
    let profile = |latencies: [f64; 3]| {
        let mut table = Vec::new();
        for (size, ms) in [4, 8, 16].into_iter().zip(latencies) {
            table.resize(size, Span::from_ms(ms));
        }
        Profile::from_table(table).expect("a batch takes some time")
    };
    let a = profile([50.0, 75.0, 100.0]);
    let b = profile([50.0, 90.0, 125.0]);
    let c = profile([60.0, 95.0, 125.0]);
    let turn = |profile, slo, rate| Turn { profile, slo: Span::from_ms(slo), rate };
    let (a, b, c) = (turn(&a, 200.0, 64.0), turn(&b, 250.0, 32.0), turn(&c, 250.0, 32.0));

    section.say(
        "**Squishy packing (Nexus 4.1).** Model A at 64 requests a second shares a GPU with B or \
         C, 32 each. A batch takes \
         as long as the next larger size of the paper's table 2.",
    );
    let mut table = Table::new(["pair", "duty cycle (ms)", "batches", "paper"]);
    let pairs = [("A and B", b, "125 ms"), ("A and C", c, "cannot share")];
    for (name, other, paper) in pairs {
        let round = shortest_round([&a, &other].into_iter());
        let cells = match round {
            Some(round) => [
                format!("{:.0}", round.as_ms()),
                format!("{} and {}", a.batch(round), other.batch(round)),
            ],
            None => ["none".to_owned(), "-".to_owned()],
        };
        table.add([name.to_owned()].into_iter().chain(cells).chain([paper.to_owned()]));
    }
    section.say(table.markdown());
}

/// Nexus 4.2, figures 3 and 4: X feeds Y, 100 ms for both.
fn two_models(section: &mut Section) {
    section.say(
        "**Query split (Nexus 4.2, figures 3 and 4).** X feeds Y `fan-out` times, 100 ms for both; \
         requests a second of a GPU for \
         each of the paper's three splits, counted as there (`l(b)`). All times are doubled, since \
         250 requests a second in \
         batches of 50 ms would be twelve and a half a batch; that changes no throughput. Ours is \
         the one in bold.",
    );
    let profile = |throughputs: [f64; 3]| {
        let mut table = Vec::new();
        for (ms, throughput) in [80.0, 100.0, 120.0].into_iter().zip(throughputs) {
            table.resize((ms * throughput / 1e3_f64).round() as usize, Span::from_ms(ms));
        }
        Profile::from_table(table).expect("a batch takes some time")
    };
    let (x, y) = (profile([200.0, 250.0, 300.0]), profile([300.0, 400.0, 500.0]));
    let printed = [[192.3, 142.9, 40.0], [235.3, 153.8, 34.5], [272.7, 150.0, 27.3]];
    let batches = [[16, 60], [25, 40], [36, 24]];
    let fan_outs = [0.1, 1.0, 10.0];
    let head = fan_outs.map(|fan_out| [format!("fan-out {fan_out}"), "paper".to_owned()]);
    let mut table =
        Table::new(["X and Y (ms)".to_owned()].into_iter().chain(head.into_iter().flatten()));
    for (at, name) in ["40 and 60", "50 and 50", "60 and 40"].into_iter().enumerate() {
        let mut row = vec![name.to_owned()];
        for (fan_out, paper) in fan_outs.into_iter().zip(printed[at]) {
            let first = Stage { profile: x.clone(), fan_out: 1.0, after: vec![] };
            let second = Stage { profile: y.clone(), fan_out, after: vec![0] };
            let slo = Span::from_ms(200.0);
            let query = Query { rate: 1000.0, slo, stages: vec![first, second] };
            let this = query.with_batches(Budget::Run, &batches[at]).expect("it is kept");
            let best = split(&query, Budget::Run).expect("there is a split");
            let text = format!("{:.1}", query.rate / this.gpus());
            let ours = best.batches() == batches[at];
            row.extend([if ours { format!("**{text}**") } else { text }, format!("{paper:.1}")]);
        }
        table.add(row);
    }
    section.say(table.markdown());
}

/// Nexus' figure 8: objects are found in frames, then cars and faces are looked at.
fn traffic(section: &mut Section) {
    section.say(
        "**Traffic (Nexus, figure 8 and 7.3.2).** SSD finds objects in 100 frames a second; cars \
         and faces are recognised side by \
         side; 400 ms for all. The paper prints no numbers for it. Models of the 1080Ti zoo: \
         SSDMobilenet; InceptionV3 for \
         GoogleNet-car; VGG16, whose layers VGG-Face has; batches up to 64, time as it is waited \
         (`2 l(b)`).",
    );
    let zoo = zoo_1080ti();
    let profile = |name: &str| {
        let model = find(&zoo, name);
        let latency = |batch| Span::from_ms(model.alpha_ms) * batch + Span::from_ms(model.beta_ms);
        Profile::from_table((1..=64).map(latency)).expect("a batch takes some time")
    };
    let mut table = Table::new([
        "cars, faces a frame",
        "batches (SSD, cars, faces)",
        "objectives (ms)",
        "GPUs",
        "all splits tried",
        "even split",
    ]);
    for (cars, faces) in [(0.1, 0.1), (1.0, 0.5), (3.0, 1.0), (10.0, 3.0)] {
        let stage = |name, fan_out, after| Stage { profile: profile(name), fan_out, after };
        let stages = vec![
            stage("SSDMobilenet", 1.0, vec![]),
            stage("InceptionV3", cars, vec![0]),
            stage("VGG16", faces, vec![0]),
        ];
        let query = Query { rate: 100.0, slo: Span::from_ms(400.0), stages };
        let best = split(&query, Budget::Wait).expect("there is a split");
        let even = even_split(&query, Budget::Wait).expect("equal parts are long enough");
        let each = |text: fn(&fermata_plan::query::StageSplit) -> String| {
            best.stages.iter().map(text).collect::<Vec<String>>().join(", ")
        };
        table.add([
            format!("{cars}, {faces}"),
            each(|stage| stage.batch.to_string()),
            each(|stage| format!("{:.1}", stage.slo.as_ms())),
            format!("{:.4}", best.gpus()),
            format!("{:.4}", every_batch(&query, Budget::Wait)),
            format!("{:.4}", even.gpus()),
        ]);
    }
    section.say(table.markdown());
}
