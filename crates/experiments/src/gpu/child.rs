//! A server and the load that is sent to it, each a process of its own, as users run them.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fermata_load::client::{Target, http};
use fermata_onnx::zoo::Net;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::runtime;

use super::rig::Rig;

/// Longer than any model takes to load and to be profiled.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a server may take to stop.
const STOP_MAX: Duration = Duration::from_secs(20);
/// What is kept of a server's log, to say what went wrong.
const LOG_LINES: usize = 20;
/// What workers are started with.
const WORKER: &str = fermata_engine::cuda::SUBCOMMAND;

/// A server on loopback; it ends when it is dropped.
pub(super) struct Server {
    process: Child,
    pub(super) http: String,
    pub(super) grpc: String,
}

/// What `fermata load --json` says, as far as it is needed here.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Loaded {
    pub(super) goodput_rps: Option<f64>,
    pub(super) sent_rps: f64,
    pub(super) in_time_rps: f64,
    pub(super) in_time_share: f64,
    pub(super) counts: Counts,
    pub(super) latency_ms: Option<LatencyMs>,
    pub(super) cpu_us_per_request: f64,
    pub(super) errors: Vec<Value>,
}

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) in_time: u64,
    pub(super) late: u64,
    pub(super) shed: u64,
    pub(super) missed: u64,
    pub(super) failed: u64,
}

/// Of answers.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct LatencyMs {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// What became of requests so far, as the server counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Progressed {
    pub(super) in_time: u64,
    pub(super) bad: u64,
    pub(super) failed: u64,
}

impl Server {
    /// Serves a repository on the rig's GPU, and waits until it does.
    pub(super) fn start(rig: &Rig, repository: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let mut command = fermata()?;
        command.arg("serve").arg(repository).args(["--address", "127.0.0.1"]);
        command.args(["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"]);
        command.arg("--gpus").arg(rig.device.index.to_string()).args(options);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().context("a server cannot be started")?;
        let log = process.stderr.take().expect("it is piped");
        let (tell, told) = channel();
        // Whoever does not read a log stops its writer.
        thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                // Nobody listens any more once it has started.
                let _ = tell.send(line);
            }
        });
        let mut server = Self { process, http: String::new(), grpc: String::new() };
        let mut last: VecDeque<String> = VecDeque::new();
        let until = Instant::now() + PATIENCE;
        loop {
            let line = match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(ended) => {
                    let why = match ended {
                        RecvTimeoutError::Timeout => "did not start in time",
                        RecvTimeoutError::Disconnected => "ended",
                    };
                    let log: Vec<String> = last.into();
                    bail!("the server {why}: {}", log.join(" | "));
                }
            };
            if let Some((_, address)) = line.split_once("http listens address=") {
                server.http = format!("http://{}", address.trim());
            }
            if let Some((_, address)) = line.split_once("grpc listens address=") {
                server.grpc = format!("grpc://{}", address.trim());
            }
            if line.contains("started") && !server.http.is_empty() && !server.grpc.is_empty() {
                return Ok(server);
            }
            if last.len() == LOG_LINES {
                last.pop_front();
            }
            last.push_back(line);
        }
    }

    /// Calls it over HTTP.
    pub(super) fn call(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Value> {
        let target = Target::parse(&self.http)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(http::call(&target, method, path, body, PATIENCE));
        let answer = answer.map_err(|error| anyhow::anyhow!("{path}: {}", error.at(&target)))?;
        serde_json::from_slice(&answer).with_context(|| format!("{path}: not JSON"))
    }

    /// Cuts the GPU anew; how long it took until the shares served, in milliseconds, as the server
    /// says.
    pub(super) fn recut(&self, gpu: usize, shares: &[u32]) -> anyhow::Result<f64> {
        let body = json!({ "shares": shares }).to_string();
        let answer = self.call("POST", &format!("/v2/fermata/gpus/{gpu}/shares"), &body)?;
        answer["took_ms"].as_f64().context("a cut says how long it took")
    }

    /// What it has done so far.
    pub(super) fn progressed(&self) -> anyhow::Result<Progressed> {
        Ok(Progressed::of(&self.call("GET", "/status.json", "")?))
    }

    /// How many executors the shares of its GPUs are, and how often seats were started again.
    pub(super) fn seats_up(&self) -> anyhow::Result<(usize, u64)> {
        Ok(seats_up(&self.call("GET", "/v2/fermata/gpus", "")?))
    }

    /// The processes of its seats.
    pub(super) fn workers(&self) -> Vec<u32> {
        children(self.process.id()).into_iter().filter(|&pid| is_worker(pid)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It gives the GPU back if it is asked to end; if it does not, it is made to.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let until = Instant::now() + STOP_MAX;
        while Instant::now() < until && !matches!(self.process.try_wait(), Ok(Some(_)) | Err(_)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Progressed {
    fn of(status: &Value) -> Self {
        let models = status["models"].as_array().map_or(&[][..], Vec::as_slice);
        let sum = |keys: &[&str]| {
            let each = models.iter().flat_map(|model| keys.iter().map(|key| model[*key].as_u64()));
            each.flatten().sum()
        };
        Self {
            in_time: sum(&["in_time"]),
            bad: sum(&["late", "dropped"]),
            failed: sum(&["failed"]),
        }
    }
}

fn seats_up(listing: &Value) -> (usize, u64) {
    let gpus = listing["gpus"].as_array().map_or(&[][..], Vec::as_slice);
    let shares = gpus.iter().filter_map(|gpu| gpu["shares"].as_array()).flatten();
    let up = shares.filter(|share| share["executor"].is_u64()).count();
    (up, gpus.iter().filter_map(|gpu| gpu["restarts"].as_u64()).sum())
}

/// Sends a load and waits for its end. The arguments are those of `fermata load`.
pub(super) fn load(arguments: &[String]) -> anyhow::Result<Loaded> {
    let mut command = fermata()?;
    let command = command.arg("load").args(arguments).arg("--json").stdin(Stdio::null());
    let output = command.output().context("a load cannot be sent")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("fermata load {}: {}", arguments.join(" "), said.trim());
    }
    serde_json::from_slice(&output.stdout).context("what a load reports cannot be read")
}

/// Sends a load on a thread of its own, while something else is done; what came of both.
pub(super) fn load_while<T>(
    arguments: &[String],
    meanwhile: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(Loaded, T)> {
    let (loaded, done) = thread::scope(|scope| {
        let sending = scope.spawn(|| load(arguments));
        let done = meanwhile();
        (sending.join().expect("sending does not panic"), done)
    });
    Ok((loaded?, done?))
}

/// The arguments of a steady load over gRPC that is counted from its first request on.
pub(super) fn steady(
    server: &Server,
    net: Net,
    rate: f64,
    slo_ms: f64,
    time: Duration,
) -> Vec<String> {
    let duration = format!("{:.3}s", time.as_secs_f64());
    let options = [
        ("--rate", rate.to_string()),
        ("--slo-ms", slo_ms.to_string()),
        ("--warmup", "0".to_owned()),
        ("--duration", duration),
        ("--threads", "2".to_owned()),
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    [server.grpc.clone(), net.name().to_owned()].into_iter().chain(options).collect()
}

/// This program, without what the environment says of options.
fn fermata() -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("this program is not to be found")?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERMATA_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let child = |entry: std::io::Result<fs::DirEntry>| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        (parent_of(&stat)? == parent).then_some(pid)
    };
    entries.filter_map(child).collect()
}

/// Of a line of `/proc/PID/stat`: behind the name, which may have spaces and brackets, are the
/// state and the parent.
fn parent_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn is_worker(pid: u32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&byte| byte == 0).any(|word| word == WORKER.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let status = json!({ "models": [
            { "name": "a", "in_time": 5, "late": 1, "dropped": 2, "failed": 3 },
            { "name": "b", "in_time": 7 }] });
        assert_eq!(Progressed::of(&status), Progressed { in_time: 12, bad: 3, failed: 3 });
        assert_eq!(Progressed::of(&json!({})), Progressed::default());
        let shares = json!([{ "executor": 3 }, { "executor": null }]);
        let listing = json!({ "gpus": [{ "restarts": 2, "shares": shares }] });
        assert_eq!(seats_up(&listing), (1, 2));
        assert_eq!(seats_up(&json!([])), (0, 0));
    }

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("12 (fermata) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (a) b (c) R 8 1"), Some(8));
        assert_eq!(parent_of("nonsense"), None);
        assert!(children(std::process::id()).iter().all(|&pid| !is_worker(pid)));
    }
}
