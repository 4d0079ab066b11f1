//! Whole servers on emulated GPUs, asked over HTTP.

mod plan;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fermata_core::Span;
use fermata_dispatch::Policy;
use fermata_engine::{EngineError, Seat};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::emulated::{EmulatedSeat, Told};
use super::*;
use crate::control::Control;
use crate::frontend::{Limits, LogControl};
use crate::server::{Config, Listeners, ServeError};

/// Longer than anything takes where all is well.
const PATIENCE: Duration = Duration::from_secs(60);
/// In its folder.
const RECORDING: &str = "recording.txt";

struct NoLog;

impl LogControl for NoLog {
    fn set_level(&self, _: tracing::level_filters::LevelFilter) -> Result<(), String> {
        Ok(())
    }
}

/// A server with one model `net` that takes `alpha b + beta` ms on a whole GPU, and has `slo_ms`.
struct Bed {
    http: SocketAddr,
    metrics: SocketAddr,
    seats: Vec<Arc<EmulatedSeat>>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<Result<(), ServeError>>,
    folder: tempfile::TempDir,
}

impl Bed {
    async fn new(seats: usize, shares: &[u32], model: &str, slo_ms: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "net/1/model.onnx", model);
        write(folder.path(), "net/fermata.toml", &format!("slo_ms = {slo_ms}"));
        Self::serve(folder, EmulatedSeat::gpu(0, seats), shares).await
    }

    async fn serve(
        folder: tempfile::TempDir,
        seats: Vec<Arc<EmulatedSeat>>,
        shares: &[u32],
    ) -> Self {
        Self::planned(folder, seats, shares, None).await
    }

    async fn planned(
        folder: tempfile::TempDir,
        seats: Vec<Arc<EmulatedSeat>>,
        shares: &[u32],
        plan: Option<SharePlan>,
    ) -> Self {
        let as_seat = |seat: &Arc<EmulatedSeat>| seat.clone() as Arc<dyn Seat>;
        let shares = shares.to_vec();
        let gpus = GpuSetup { seats: vec![seats.iter().map(as_seat).collect()], shares, plan };
        let mut config = config(folder.path(), gpus);
        config.record = Some(folder.path().join(RECORDING));
        let local = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (http, metrics) = (local().await, local().await);
        let addresses = (http.local_addr().unwrap(), metrics.local_addr().unwrap());
        let listeners = Listeners { http: Some(http), grpc: None, metrics: Some(metrics) };
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let server = tokio::spawn(crate::server::serve(config, listeners, shutdown));
        let bed = Self {
            http: addresses.0,
            metrics: addresses.1,
            seats,
            stop: Some(stop),
            server,
            folder,
        };
        bed.until("it is ready", async || {
            ask(bed.http, "GET", "/v2/health/ready", "").await.0 == 200
        })
        .await;
        bed
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_so().await {
            assert!(began.elapsed() < PATIENCE, "{what}: it never is");
            assert!(!self.server.is_finished(), "the server has ended");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn gpu(&self) -> Value {
        let (status, body) = ask(self.http, "GET", "/v2/fermata/gpus", "").await;
        assert_eq!(status, 200);
        serde_json::from_str::<Value>(&body).unwrap()["gpus"][0].take()
    }

    async fn recut(&self, shares: &[u32]) -> (u16, Value) {
        let body = json!({ "shares": shares }).to_string();
        let (status, body) = ask(self.http, "POST", "/v2/fermata/gpus/0/shares", &body).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Several clients that ask as soon as they are answered, until they are told to stop. Any other answer than the right one is a panic.
    fn load(&self, clients: usize) -> Load {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut all = JoinSet::new();
        for _ in 0..clients {
            let (stop, answers, http) = (stop.clone(), answers.clone(), self.http);
            all.spawn(async move {
                while !stop.load(SeqCst) {
                    infer(http, answers.load(SeqCst) as f32).await;
                    answers.fetch_add(1, SeqCst);
                }
            });
        }
        Load { stop, answers, clients: all }
    }

    /// Waits until so many more requests were answered.
    async fn serves(&self, load: &Load, more: usize) {
        let before = load.answers.load(SeqCst);
        self.until("requests are answered", async || load.answers.load(SeqCst) >= before + more)
            .await;
    }

    /// Ends it. What happened to its dispatchers, run again, leads to the same decisions.
    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.server.await.unwrap().unwrap();
        let file = std::fs::File::open(self.folder.path().join(RECORDING)).unwrap();
        let replay = fermata_recording::replay(std::io::BufReader::new(file)).unwrap();
        assert_eq!((replay.pools, replay.difference), (3, None));
    }
}

struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    clients: JoinSet<()>,
}

impl Load {
    /// All clients were answered all they asked.
    async fn end(self) {
        self.stop.store(true, SeqCst);
        self.clients.join_all().await;
    }
}

fn config(folder: &Path, gpus: GpuSetup) -> Config {
    Config {
        repositories: vec![folder.to_owned()],
        slo: None,
        control: Control::Start,
        http: None,
        grpc: None,
        metrics: None,
        policy: Policy::FERMATA,
        spare: None,
        engine: Err(EngineError::Library("there is no library for the processors".to_owned())),
        cpu_executors: 1,
        cpu_threads: 1,
        gpus: Some(gpus),
        emulated_executors: 1,
        planning: None,
        margin: Span::ZERO,
        scheduler_threads: 0,
        record: None,
        exit_timeout: PATIENCE,
        limits: Limits::default(),
        log: Box::new(NoLog),
    }
}

fn write(folder: &Path, path: &str, text: &str) {
    let file = folder.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn post_infer(address: SocketAddr, number: f32) -> (u16, String) {
    let input = json!({ "name": "x", "datatype": "FP32", "shape": [1, 2], "data": [number, 1.5] });
    let body = json!({ "inputs": [input] }).to_string();
    ask(address, "POST", "/v2/models/net/infer", &body).await
}

/// Sends two numbers and expects them back.
async fn infer(address: SocketAddr, number: f32) {
    let (status, body) = post_infer(address, number).await;
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["outputs"][0]["data"], json!([number, 1.5]));
}

fn percents(gpu: &Value) -> Vec<u64> {
    let shares = gpu["shares"].as_array().unwrap();
    shares.iter().map(|share| share["percent"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_is_cut_anew_under_load_and_no_request_fails() {
    let bed = Bed::new(3, &[100], "0.2 0.3", 10_000).await;
    let loads = || bed.seats.iter().map(|seat| seat.loads.load(SeqCst)).sum::<usize>();
    assert_eq!(loads(), 3, "the model is on every seat");
    let load = bed.load(4);
    for shares in [&[40, 60][..], &[100], &[20, 30, 50], &[50, 30], &[100]] {
        let (status, recut) = bed.recut(shares).await;
        assert_eq!((status, &recut["shares"]), (200, &json!(shares)), "{recut}");
        assert!(recut["took_ms"].as_f64().unwrap() > 0.0);
        let gpu = bed.gpu().await;
        assert_eq!(json!(percents(&gpu)), json!(shares));
        for share in gpu["shares"].as_array().unwrap() {
            assert!(share["executor"].is_number(), "{gpu}");
            let seat = &bed.seats[share["seat"].as_u64().unwrap() as usize];
            assert_eq!(u64::from(seat.multiprocessors()), share["percent"].as_u64().unwrap());
        }
        let pool = &status_of(&bed).await["pools"][2];
        assert_eq!((&pool["name"], &pool["executors"]), (&json!("gpu"), &json!(shares.len())));
        bed.serves(&load, 20).await;
    }
    load.end().await;
    assert_eq!(loads(), 3, "nothing is loaded for a re-cut");
    let (_, metrics) = ask(bed.metrics, "GET", "/metrics", "").await;
    for line in [
        "fermata_gpu_memory_total_bytes{gpu=\"0\"} 1073741824",
        "fermata_recuts_total 5",
        "fermata_seat_restarts_total{gpu=\"0\"} 0",
        "fermata_last_recut_seconds{gpu=\"0\"} ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let share = metrics.lines().find(|line| line.starts_with("fermata_gpu_share_percent{"));
    assert!(share.unwrap().ends_with("} 100"), "{metrics}");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_seats_make_ready_before_the_first_of_them_changes_over() {
    let bed = Bed::new(3, &[100], "0.2 0.3", 10_000).await;
    let told = || std::mem::take(&mut *bed.seats[0].told.lock().unwrap());
    told();
    let (status, recut) = bed.recut(&[20, 30, 50]).await;
    assert_eq!(status, 200, "{recut}");
    let all = told();
    let (ready, take) = all.split_at(3);
    // Those that have none first.
    assert_eq!(take, [Told::Take(30), Told::Take(50), Told::Take(20)]);
    for count in [20, 30, 50] {
        assert!(ready.contains(&Told::Prepare(count)), "{all:?}");
    }
    // One that cannot is given its share all the same.
    bed.seats[1].refuses_ready.store(true, SeqCst);
    let (status, recut) = bed.recut(&[40, 60]).await;
    assert_eq!(status, 200, "{recut}");
    let all = told();
    assert_eq!(all, [Told::Prepare(40), Told::Take(40), Told::Take(60)]);
    bed.stop().await;
}

async fn status_of(bed: &Bed) -> Value {
    let (_, status) = ask(bed.http, "GET", "/status.json", "").await;
    serde_json::from_str(&status).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_seat_loses_is_answered_and_the_seat_comes_back() {
    let bed = Bed::new(2, &[40, 60], "0.2 0.8", 10_000).await;
    let load = bed.load(6);
    for (times, seat) in [(1, 0), (2, 1), (3, 0)] {
        bed.serves(&load, 12).await;
        bed.seats[seat].break_down();
        bed.until("it is back", async || {
            let gpu = bed.gpu().await;
            gpu["restarts"] == times && gpu["shares"][seat]["executor"].is_number()
        })
        .await;
        assert_eq!(percents(&bed.gpu().await), [40, 60]);
    }
    bed.serves(&load, 12).await;
    load.end().await;
    assert_eq!(bed.seats[0].multiprocessors(), 40, "with the share that it had");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seat_that_breaks_while_nobody_asks_comes_back_too() {
    let bed = Bed::new(2, &[100], "0.2 0.3", 10_000).await;
    // The second has no share, and still must have the model when it gets one.
    for (times, seat) in [(1, 0), (2, 1)] {
        bed.seats[seat].break_down();
        bed.until("it is back", async || bed.gpu().await["restarts"] == times).await;
    }
    bed.until("it serves", async || bed.gpu().await["shares"][0]["executor"].is_number()).await;
    infer(bed.http, 1.0).await;
    let (status, recut) = bed.recut(&[50, 50]).await;
    assert_eq!(status, 200, "{recut}");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seat_that_stays_away_gets_its_share_of_a_new_cut_when_it_is_back() {
    let bed = Bed::new(2, &[50, 50], "0.2 0.3", 10_000).await;
    bed.seats[1].refuses_restart.store(true, SeqCst);
    bed.seats[1].break_down();
    bed.until("it is away", async || bed.gpu().await["shares"][1]["executor"].is_null()).await;
    infer(bed.http, 1.0).await;
    let (status, recut) = bed.recut(&[70, 30]).await;
    assert_eq!(status, 200, "{recut}");
    infer(bed.http, 2.0).await;
    bed.seats[1].refuses_restart.store(false, SeqCst);
    bed.until("it is back", async || bed.gpu().await["shares"][1]["executor"].is_number()).await;
    assert_eq!(bed.seats[1].multiprocessors(), 30);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_that_break_while_their_gpu_is_cut_anew_all_serve_in_the_end() {
    let bed = Bed::new(3, &[100], "0.2 0.3", 10_000).await;
    let (stop, http) = (Arc::new(AtomicBool::new(false)), bed.http);
    let asking = tokio::spawn({
        let stop = stop.clone();
        async move {
            while !stop.load(SeqCst) {
                // One that is lost twice is refused.
                let status = post_infer(http, 1.0).await.0;
                assert!([200, 500, 503].contains(&status), "{status}");
            }
        }
    });
    for round in 0..12 {
        let cuts = [&[40, 60][..], &[100], &[20, 30, 50], &[50, 50]];
        bed.seats[round % 3].break_down();
        let (status, recut) = bed.recut(cuts[round % 4]).await;
        assert_eq!(status, 200, "{recut}");
        bed.seats[(round + 1) % 3].break_down();
    }
    let (status, recut) = bed.recut(&[20, 30, 50]).await;
    assert_eq!(status, 200, "{recut}");
    bed.until("all serve", async || {
        let gpu = bed.gpu().await;
        let shares = gpu["shares"].as_array().unwrap();
        shares.len() == 3 && shares.iter().all(|share| share["executor"].is_number())
    })
    .await;
    stop.store(true, SeqCst);
    asking.await.unwrap();
    for (seat, multiprocessors) in bed.seats.iter().zip([20, 30, 50]) {
        assert_eq!(seat.multiprocessors(), multiprocessors);
    }
    infer(bed.http, 2.0).await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_that_cannot_be_are_refused_in_one_line_and_change_nothing() {
    let bed = Bed::new(2, &[40, 60], "0.4 0.1", 30).await;
    let post = async |path: &str, body: &str| ask(bed.http, "POST", path, body).await;
    let path = "/v2/fermata/gpus/0/shares";
    for (path, body, status, reason) in [
        (path, "{\"shares\": [60, 60]}", 400, "the shares are 120 % together"),
        (path, "{\"shares\": []}", 400, "there is no share"),
        (path, "{\"shares\": [0]}", 400, "runs nothing"),
        (path, "{\"shares\": [10, 10, 10]}", 400, "has 2 seats, which is fewer than 3 shares"),
        (path, "{\"shares\": [1]}", 400, "model 'net' takes "),
        (path, "{\"shares\": [-1]}", 400, "shares[0]"),
        (path, "{\"shares\": 40}", 400, "shares"),
        (path, "{}", 400, "missing field `shares`"),
        (path, "", 400, "a GPU needs a body"),
        (path, "{\"shares\": [40, 60], \"gpu\": 1}", 400, "unknown field `gpu`"),
        ("/v2/fermata/gpus/7/shares", "{\"shares\": [40]}", 404, "there is no GPU 7: there are 0"),
        ("/v2/fermata/gpus/x/shares", "{\"shares\": [40]}", 404, "'x' is not the number of a GPU"),
    ] {
        let (code, text) = post(path, body).await;
        assert_eq!(code, status, "{body}: {text}");
        assert!(text.contains(reason) && text.lines().count() == 1, "{body}: {text}");
    }
    let long = vec!["1"; 5_000].join(",");
    let (code, text) = post(path, &format!("{{\"shares\": [{long}]}}")).await;
    assert_eq!((code, text.len() < 200), (400, true), "{text}");
    assert_eq!(percents(&bed.gpu().await), [40, 60]);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_that_fails_in_the_middle_is_taken_back_and_goes_on_serving() {
    let bed = Bed::new(2, &[100], "0.2 0.3", 10_000).await;
    let load = bed.load(3);
    bed.seats[0].refuses_share.store(true, SeqCst);
    let (status, text) = bed.recut(&[40, 60]).await;
    let text = text["error"].as_str().unwrap().to_owned();
    assert_eq!(status, 500, "{text}");
    assert!(text.contains("seat 0: no such share; the shares are now 100 % on seat 0"), "{text}");
    let gpu = bed.gpu().await;
    assert_eq!(percents(&gpu), [100]);
    assert!(gpu["shares"][0]["executor"].is_number());
    bed.seats[0].refuses_share.store(false, SeqCst);
    let (status, recut) = bed.recut(&[40, 60]).await;
    assert_eq!(status, 200, "{recut}");
    bed.serves(&load, 6).await;
    load.end().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_measured_on_a_share_is_remembered_for_it() {
    let bed = Bed::new(2, &[100], "0.2 0.3", 10_000).await;
    let kept = |bed: &Bed| {
        let folder = bed.folder.path().join("net/1/.fermata");
        std::fs::read_dir(folder).unwrap().count()
    };
    assert_eq!(kept(&bed), 1, "one share was measured");
    let folder = tempfile::tempdir().unwrap();
    for path in ["net/1/model.onnx", "net/fermata.toml"] {
        let text = std::fs::read_to_string(bed.folder.path().join(path)).unwrap();
        write(folder.path(), path, &text);
    }
    bed.stop().await;
    let bed = Bed::serve(folder, EmulatedSeat::gpu(0, 2), &[40, 60]).await;
    assert_eq!(kept(&bed), 2, "two shares were measured");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_that_are_to_stay_on_the_processors_do() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "net/1/model.onnx", "0.2 0.3");
    write(folder.path(), "net/fermata.toml", "slo_ms = 10000");
    let bed = Bed::serve(folder, EmulatedSeat::gpu(0, 1), &[100]).await;
    let settings = bed.folder.path().join("net/fermata.toml");
    std::fs::write(settings, "slo_ms = 10000\ndevice = \"cpu\"").unwrap();
    let (status, text) = ask(bed.http, "POST", "/v2/repository/models/net/load", "{}").await;
    assert_eq!(status, 400);
    assert!(text.contains("no library for the processors"), "{text}");
    infer(bed.http, 3.0).await;
    let (status, _) = ask(bed.http, "POST", "/v2/repository/models/net/unload", "{}").await;
    assert_eq!(status, 200);
    bed.stop().await;
}

#[tokio::test]
async fn gpus_that_cannot_be_cut_so_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let setup = |seats: usize, shares: &[u32]| {
        let seats = EmulatedSeat::gpu(0, seats).into_iter().map(|seat| seat as Arc<dyn Seat>);
        GpuSetup { seats: vec![seats.collect()], shares: shares.to_vec(), plan: None }
    };
    for (gpus, reason) in [
        (setup(2, &[60, 60]), "GPU 0 cannot be cut into 60,60: the shares are 120 %"),
        (setup(1, &[40, 60]), "GPU 0 has 1 seats, which is fewer than 2 shares"),
        (setup(0, &[100]), "there is no GPU to serve on"),
        (GpuSetup { seats: Vec::new(), shares: vec![100], plan: None }, "there is no GPU"),
    ] {
        let config = config(folder.path(), gpus);
        let error = crate::server::run(config, async {}).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}
