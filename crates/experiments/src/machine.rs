//! Where and how numbers came about: command, commit, machine, seed, time.

use std::fs;
use std::process::Command;
use std::time::Instant;

use fermata_load::stolen::{self, DISTURBED, Ticks};

/// What is the same for all sections of one call.
pub(super) struct Machine {
    command: String,
    commit: String,
    processor: String,
    cores: usize,
}

impl Machine {
    /// This machine, commit and command line.
    pub(super) fn this() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            command: format!("fermata {}", arguments.join(" ")),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores,
        }
    }

    /// The last lines of a section on what was measured since then.
    pub(super) fn provenance(&self, seed: u64, since: &Start) -> String {
        let Self { command, commit, processor, cores } = self;
        let seconds = since.time.elapsed().as_secs_f64();
        let took = match seconds < 120.0 {
            true => format!("{seconds:.1} s"),
            false => format!("{:.1} min", seconds / 60.0),
        };
        let stolen = stolen::since(since.ticks).filter(|&share| share > DISTURBED);
        let stolen = stolen.map_or(String::new(), |share| {
            format!(" · {:.1} % of the processors' time stolen by other machines", 100.0 * share)
        });
        format!(
            "\n<sub>`{command}` · commit {commit} · {processor}, {cores} cores · seed {seed} · \
             {took}{stolen}</sub>\n"
        )
    }
}

/// When something began.
pub(super) struct Start {
    pub(super) time: Instant,
    ticks: Option<Ticks>,
}

impl Start {
    pub(super) fn now() -> Self {
        Self { time: Instant::now(), ticks: Ticks::now() }
    }
}

/// The commit of the working directory; `-dirty` where the program or its data differ from it.
fn commit() -> Option<String> {
    let head = git(&["rev-parse", "--short", "HEAD"])?;
    // Results are written while this runs: they do not make a commit another one.
    let sources = [":/crates", ":/data", ":/Cargo.toml", ":/Cargo.lock"];
    let changes = git(&[&["status", "--porcelain", "--"][..], &sources[..]].concat())?;
    Some(if changes.is_empty() { head } else { format!("{head}-dirty") })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
