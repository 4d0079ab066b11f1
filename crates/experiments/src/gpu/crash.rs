//! A worker is killed while its server is under load: what becomes of requests, and how long it is
//! missed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fermata_chart::{Axis, Lines, Mark, Series, grouped};
use fermata_onnx::zoo::Net;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::child::{Loaded, Progressed, Server, load_while, steady};
use super::{Bench, met, write_json, zoo};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

const NET: Net = Net::ResNet50;
const SLO_MS: f64 = 20.0;
/// Requests a second: less than what one of two halves serves.
const RATE: f64 = 2500.0;
/// Before the worker is killed, and how long it is looked at all in all. However little time there
/// is: a worker needs up to ten seconds to come back, and what it does then is to be seen.
const BEFORE: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(18);
/// How often the server is asked.
const TICK: Duration = Duration::from_millis(50);
/// A worker that is not back by then does not come back.
const PATIENCE: Duration = Duration::from_secs(90);
/// The times over which goodput is told, in seconds.
const SLOT: f64 = 0.5;

/// What the server had done by some time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    /// In seconds since the load began.
    at: f64,
    #[serde(flatten)]
    done: Progressed,
}

/// What was seen.
#[derive(Clone, Debug, Serialize)]
struct Watched {
    seen: Vec<Seen>,
    killed_at: f64,
    /// When the share was an executor again.
    back_at: f64,
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    bench.progress.expect(2);
    rig.release();
    let repository = zoo::repository(&rig.models, "crash", &[(NET, SLO_MS)])?;
    let server = Server::start(rig, &repository, &["--seats", "2", "--shares", "50,50"])?;
    bench.progress.finish_one();
    let arguments = steady(&server, NET, RATE, SLO_MS, ALL);
    let (loaded, watched) = load_while(&arguments, || watch(&server))?;
    drop(server);
    bench.progress.finish_one();
    write_json(bench, "crash", &serde_json::json!({ "watched": watched, "loaded": loaded }))?;
    Ok(section(&watched, &loaded))
}

/// Looks at the server all the time, and kills a worker of it.
fn watch(server: &Server) -> anyhow::Result<Watched> {
    let start = Instant::now();
    let mut watched = Watched { seen: Vec::new(), killed_at: f64::NAN, back_at: f64::NAN };
    let shares = server.seats_up()?.0;
    while start.elapsed() < ALL || watched.back_at.is_nan() {
        let at = start.elapsed().as_secs_f64();
        watched.seen.push(Seen { at, done: server.progressed()? });
        if watched.killed_at.is_nan() && start.elapsed() >= BEFORE {
            let worker = *server.workers().first().context("the server has no worker")?;
            let worker = Pid::from_raw(worker as i32).context("a worker has a number")?;
            kill_process(worker, Signal::KILL).context("the worker cannot be killed")?;
            watched.killed_at = start.elapsed().as_secs_f64();
        } else if !watched.killed_at.is_nan() && watched.back_at.is_nan() {
            let (up, restarts) = server.seats_up()?;
            if restarts > 0 && up == shares {
                watched.back_at = start.elapsed().as_secs_f64();
            }
            if start.elapsed() > BEFORE + PATIENCE {
                bail!("the worker that was killed did not come back");
            }
        }
        thread::sleep(TICK);
    }
    Ok(watched)
}

/// Requests in time a second between two moments.
fn goodput(seen: &[Seen], from: f64, to: f64) -> f64 {
    let mut within = seen.iter().filter(|seen| (from..=to).contains(&seen.at));
    let (Some(first), Some(last)) = (within.next(), within.next_back()) else { return f64::NAN };
    (last.done.in_time - first.done.in_time) as f64 / (last.at - first.at)
}

fn section(watched: &Watched, loaded: &Loaded) -> Section {
    let Watched { seen, killed_at, back_at } = watched;
    let end = seen.last().map_or(0.0, |seen| seen.at);
    let mut section = Section::default();
    section.say(format!(
        "{NET} on two halves of the GPU under {} requests a second, SLO {SLO_MS} ms, when the \
         process of one half is killed (`kill -9`). The other goes on; the server starts \
         the lost one again and loads its models, and what was lost with it is run elsewhere.",
        grouped(RATE, 0)
    ));
    let mut table = Table::new(["when", "in time, requests/s"]);
    let spans = [
        ("before", 0.0, *killed_at),
        ("with one half", *killed_at, *back_at),
        ("with both again", *back_at, end),
    ];
    for (name, from, to) in spans {
        let found = goodput(seen, from, to);
        let shown = if found.is_finite() { grouped(found, 0) } else { "-".to_owned() };
        table.add([format!("{name}, {:.1} s", to - from), shown]);
    }
    section.say(table.markdown());
    let counts = loaded.counts;
    section.say(format!(
        "The killed half served again after {:.1} s. Of {} requests {} were in time, {} late, {} \
         shed, {} missed and {} failed (at most 0: {}).",
        back_at - killed_at,
        grouped(counts.sent as f64, 0),
        grouped(counts.in_time as f64, 0),
        counts.late,
        counts.shed,
        counts.missed,
        counts.failed,
        met(counts.failed == 0),
    ));
    section.show("crash", "goodput over time", picture(watched));
    section
}

fn picture(watched: &Watched) -> String {
    let Watched { seen, killed_at, back_at } = watched;
    let slots = (seen.last().map_or(0.0, |seen| seen.at) / SLOT) as usize;
    let point = |slot: usize| {
        let from = slot as f64 * SLOT;
        (from, goodput(seen, from, from + SLOT))
    };
    let points = (0..slots).map(point).filter(|(_, rate)| rate.is_finite()).collect();
    let lines = Lines {
        title: "Requests in time".to_owned(),
        x: Axis::from_zero("seconds"),
        y: Axis::from_zero("requests a second"),
        series: vec![Series::line("in time", points)],
        marks: vec![Mark::X(*killed_at, "killed".to_owned()), Mark::X(*back_at, "back".to_owned())],
    };
    figure("A worker is killed", "two shares of one GPU", vec![(340.0, vec![Box::new(lines)])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::child::Counts;

    #[test]
    fn goodput_is_told_before_during_and_after() {
        let rate = |at: f64| if (2.0..4.0).contains(&at) { 50.0 } else { 100.0 };
        let (mut seen, mut sum) = (Vec::new(), 0.0);
        for tick in 0..=120 {
            let at = 0.05 * f64::from(tick);
            let done = Progressed { in_time: sum as u64, bad: 0, failed: 0 };
            seen.push(Seen { at, done });
            sum += 0.05 * rate(at);
        }
        assert!((goodput(&seen, 2.0, 4.0) - 50.0).abs() < 2.0);
        assert!(goodput(&seen, 9.0, 10.0).is_nan());
        let watched = Watched { seen, killed_at: 2.0, back_at: 4.0 };
        let loaded = Loaded {
            goodput_rps: None,
            sent_rps: 0.0,
            in_time_rps: 0.0,
            in_time_share: 1.0,
            counts: Counts { sent: 500, in_time: 500, ..Counts::default() },
            latency_ms: None,
            cpu_us_per_request: 0.0,
            errors: Vec::new(),
        };
        let text = section(&watched, &loaded).body;
        assert!(text.contains("served again after 2.0 s"), "{text}");
        assert!(text.contains("0 failed (at most 0: yes)"), "{text}");
        assert!(text.contains("| with one half, 2.0 s |"), "{text}");
    }
}
