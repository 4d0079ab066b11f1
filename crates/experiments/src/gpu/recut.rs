//! A GPU is cut into two shares and back while it serves.

use std::thread;

use fermata_chart::grouped;
use fermata_onnx::zoo::Net;
use serde::Serialize;

use super::child::{Loaded, Server, load_while, steady};
use super::{Bench, met, write_json, zoo};
use crate::document::{Section, Table};
use crate::trials::symphony::Meter;

const NET: Net = Net::ResNet50;
const SLO_MS: f64 = 20.0;
/// Requests a second: about half of what two halves serve at this objective.
const RATE: f64 = 4000.0;
/// The cuts, one after the other, again and again.
const CUTS: [&[u32]; 4] = [&[50, 50], &[100], &[20, 80], &[100]];
const ROUNDS: usize = 6;
/// Before each cut, in milliseconds.
const PAUSE: f64 = 700.0;
/// What is asked for.
const TOOK_MAX_MS: f64 = 50.0;

#[derive(Debug, Serialize)]
struct Cut {
    shares: Vec<u32>,
    took_ms: f64,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    let rounds = rig.count(ROUNDS, 1);
    bench.progress.expect(1 + rounds * CUTS.len());
    rig.release();
    let repository = zoo::repository(&rig.models, "recut", &[(NET, SLO_MS)])?;
    let server = Server::start(rig, &repository, &["--seats", "2", "--shares", "100"])?;
    bench.progress.finish_one();
    let pause = rig.time(PAUSE);
    let time = pause * (rounds * CUTS.len() + 2) as u32;
    let arguments = steady(&server, NET, RATE, SLO_MS, time);
    let (loaded, cuts) = load_while(&arguments, || {
        let mut cuts = Vec::new();
        for shares in (0..rounds).flat_map(|_| CUTS) {
            thread::sleep(pause);
            let took_ms = server.recut(rig.device.index, shares)?;
            cuts.push(Cut { shares: shares.to_vec(), took_ms });
            bench.progress.finish_one();
        }
        Ok(cuts)
    })?;
    drop(server);
    write_json(bench, "recut", &serde_json::json!({ "cuts": cuts, "loaded": loaded }))?;
    Ok(section(&cuts, &loaded))
}

fn section(cuts: &[Cut], loaded: &Loaded) -> Section {
    let mut section = Section::default();
    section.say(format!(
        "{NET} under {} requests a second, SLO {SLO_MS} ms; a server with two seats is asked to \
         cut its GPU anew, and answers when all of the new shares serve. \
         gpulet needs 10 to 15 s for it.",
        grouped(RATE, 0)
    ));
    let mut table =
        Table::new(["into", "how often", "median, ms", "longest, ms", "at most", "met"]);
    let mut seen: Vec<&[u32]> = Vec::new();
    for cut in cuts {
        if seen.contains(&cut.shares.as_slice()) {
            continue;
        }
        seen.push(&cut.shares);
        let same = cuts.iter().filter(|other| other.shares == cut.shares);
        let mut took: Vec<f64> = same.map(|cut| cut.took_ms).collect();
        took.sort_by(f64::total_cmp);
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        let name: Vec<String> = cut.shares.iter().map(u32::to_string).collect();
        table.add([
            format!("{} %", name.join(", ")),
            took.len().to_string(),
            format!("{median:.1}"),
            format!("{longest:.1}"),
            format!("{TOOK_MAX_MS} ms"),
            met(longest <= TOOK_MAX_MS).to_owned(),
        ]);
    }
    section.say(table.markdown());
    let counts = loaded.counts;
    section.say(format!(
        "Of {} requests meanwhile {} were in time, {} late, {} shed, {} missed and {} failed (at \
         most 0: {}).",
        grouped(counts.sent as f64, 0),
        grouped(counts.in_time as f64, 0),
        counts.late,
        counts.shed,
        counts.missed,
        counts.failed,
        met(counts.failed == 0),
    ));
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::child::Counts;

    #[test]
    fn the_longest_of_each_cut_counts_and_failures_are_told() {
        let cut = |shares: &[u32], took_ms| Cut { shares: shares.to_vec(), took_ms };
        let cuts = [cut(&[50, 50], 12.0), cut(&[100], 3.0), cut(&[50, 50], 70.0)];
        let loaded = Loaded {
            goodput_rps: None,
            sent_rps: 0.0,
            in_time_rps: 0.0,
            in_time_share: 1.0,
            counts: Counts { sent: 10, in_time: 9, failed: 1, ..Counts::default() },
            latency_ms: None,
            cpu_us_per_request: 0.0,
            errors: Vec::new(),
        };
        let text = section(&cuts, &loaded).body;
        assert!(text.contains("| 50, 50 % | 2 | 70.0 | 70.0 | 50 ms | **no** |"), "{text}");
        assert!(text.contains("| 100 % | 1 | 3.0 | 3.0 | 50 ms | yes |"), "{text}");
        assert!(text.contains("and 1 failed (at most 0: **no**)"), "{text}");
    }
}
