//! What is shown of fixed answers of a server.

use std::time::Duration;

use serde_json::{Value, json};

use super::figures::History;
use super::status::Status;
use super::text::{self, Room};

const WIDE: Room = Room { width: 140, height: None, models: 20 };

#[test]
fn a_second_look_tells_what_happened_since_the_first() {
    let mut history = History::default();
    push(&mut history, 10, first());
    push(&mut history, 15, second());
    check(
        &history,
        WIDE,
        "\
Fermata 0.1.0 at http://host:8000: ready, up 65 s, 3 models, of the last 5 s

model             SLO   req/s  in time  p50 ms  p99 ms  of the SLO     waiting  batch  \
sizes               limited by  dropped   late
resnet50        25 ms     200   99.0 %    17.2    24.9  ████████▒▒▒▒│        3    7.6  ▂  ▁   █   \
▃ 1–12   bert              4      6
bert            60 ms      21   80.0 %    47.9   172.5  ██████████▒▒▶        0    4.0  \
█            4                        5     16
idle          12.5 ms       0        –       –       –                       0      \
–                                        0      0
all models                221   97.1 %    70 %   200 %  ████████▒▒▒▒▶        3    6.8  ▂  ▅   █   \
▃ 1–12                     9     22

pool cpu          1 executor     0 % busy   0.0 % bad     1 advised
  ·

pool emulated     4 executors   47 % busy   2.9 % bad     5 advised
  ▄█·▁

not served: broken, unavailable line 3: expected a number
",
    );
}

#[test]
fn a_server_that_plans_tells_of_its_plan_in_a_line() {
    let mut history = History::default();
    let mut status = first();
    status["plan"] = json!({ "plans": 7, "moves": 3, "gpus": 12, "gpus_limit": 64, "last": {
        "age_s": 4.2, "why": "an epoch\nhas passed", "gpus": 11, "pools": [] } });
    push(&mut history, 10, status);
    let line =
        "plan  12 of 64 GPUs  7 plans  3 moves  the last 4 s ago asked for 11: an epoch has passed";
    let lines = lines(&history, WIDE);
    assert!(lines.iter().any(|there| there == line), "{lines:#?}");
}

#[test]
fn one_look_tells_of_all_the_time() {
    let mut history = History::default();
    push(&mut history, 0, first());
    let figures = history.figures().unwrap();
    assert_eq!(figures.over, None);
    assert_eq!(figures.models[0].name, "resnet50");
    // 3,000 requests in the server's 60 seconds.
    assert!((figures.models[0].rate - 50.0).abs() < 1e-9);
}

#[test]
fn a_server_that_began_anew_is_not_compared_with_the_old_one() {
    let mut history = History::default();
    push(&mut history, 0, second());
    push(&mut history, 1, first());
    assert_eq!(history.figures().unwrap().over, None);
}

#[test]
fn a_model_whose_counters_began_anew_is_counted_from_there() {
    let mut history = History::default();
    let mut now = second();
    now["models"][0]["in_time"] = json!(10);
    now["models"][0]["answers"] = json!(10);
    push(&mut history, 0, first());
    push(&mut history, 5, now);
    let figures = history.figures().unwrap();
    let resnet = figures.models.iter().find(|model| model.name == "resnet50").unwrap();
    assert!(resnet.rate < 25.0, "{}", resnet.rate);
}

#[test]
fn where_there_is_little_room_the_busiest_models_and_columns_stay() {
    let mut history = History::default();
    push(&mut history, 10, first());
    push(&mut history, 15, second());
    for height in 1..30 {
        for width in [1, 20, 60, 79, 80, 100, 120] {
            let lines = lines(&history, Room { width, height: Some(height), models: 20 });
            assert!(lines.len() <= height, "{width} x {height}");
        }
    }
    let room = Room { width: 80, height: Some(14), models: 20 };
    let text = lines(&history, room).join("\n");
    assert!(text.contains("resnet50") && !text.contains("sizes"), "{text}");
    assert!(text.contains("2 more models have fewer requests"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn colours_do_not_change_the_text() {
    let mut history = History::default();
    push(&mut history, 10, first());
    push(&mut history, 15, second());
    let (status, figures) = (history.last().unwrap(), history.figures().unwrap());
    for line in text::render("http://host:8000", status, &figures, Some("gone"), WIDE) {
        let coloured = line.coloured(140, true);
        let mut plain = String::new();
        let mut pieces = coloured.split("\x1b[");
        plain += pieces.next().unwrap();
        pieces.for_each(|piece| plain += piece.split_once('m').unwrap().1);
        assert_eq!(plain.trim_end(), line.plain());
        assert_eq!(line.coloured(140, false).trim_end(), line.plain());
    }
}

fn push(history: &mut History, second: u64, status: Value) {
    let status: Status = serde_json::from_value(status).unwrap();
    history.push(Duration::from_secs(second), status);
}

fn lines(history: &History, room: Room) -> Vec<String> {
    let (status, figures) = (history.last().unwrap(), history.figures().unwrap());
    let lines = text::render("http://host:8000", status, &figures, None, room);
    lines.iter().map(text::Line::plain).collect()
}

fn check(history: &History, room: Room, expected: &str) {
    let text = lines(history, room).join("\n") + "\n";
    assert!(text == expected, "expected:\n{expected}\nfound:\n{text}");
}

fn first() -> Value {
    json!({
        "version": "0.1.0", "ready": true, "draining": false, "uptime_s": 60.0,
        "models": [
            {
                "name": "resnet50", "version": "1", "pool": "emulated",
            "slo_ms": 25.0, "pending": 3,
                "in_time": 3000, "late": 0, "dropped": 0, "cancelled": 0, "failed": 0,
                "latency": [[12.5, 1000], [25.0, 3000], [75.0, 3000]], "answers": 3000,
                "batches": [[1, 10], [4, 10]]
            },
            {
                "name": "bert", "version": "1", "pool": "emulated", "slo_ms": 60.0, "pending": 0,
                "in_time": 0, "late": 0, "dropped": 0, "cancelled": 0, "failed": 0,
                "latency": [[30.0, 0], [60.0, 0], [180.0, 0]], "answers": 0, "batches": []
            },
            {
                "name": "idle", "version": "1", "pool": "cpu", "slo_ms": 12.5, "pending": 0,
                "in_time": 0, "late": 0, "dropped": 0, "cancelled": 0, "failed": 0,
                "latency": [[6.25, 0], [12.5, 0], [37.5, 0]], "answers": 0, "batches": []
            }
        ],
        "pools": [
            { "name": "cpu", "executors": 1, "busy": 0.0, "bad": 0.0, "advised_executors": 1,
              "busy_s": [0.0] },
            {
                "name": "emulated", "executors": 4, "busy": 0.3, "bad": 0.0, "advised_executors": 2,
                "busy_s": [10.0, 10.0, 10.0, 10.0]
            }
        ],
        "missing": [{ "name": "broken", "state": "UNAVAILABLE",
                          "reason": "line 3:\nexpected a number" }]
    })
}

fn second() -> Value {
    let mut status = first();
    status["uptime_s"] = json!(65.0);
    let resnet = &mut status["models"][0];
    resnet["in_time"] = json!(3990);
    resnet["late"] = json!(6);
    resnet["dropped"] = json!(4);
    resnet["answers"] = json!(3996);
    resnet["latency"] = json!([[12.5, 1200], [25.0, 3990], [75.0, 3996]]);
    resnet["batches"] = json!([[1, 20], [4, 15], [8, 50], [12, 15]]);
    resnet["limited_by"] = json!([["bert", 20], ["idle", 3]]);
    let bert = &mut status["models"][1];
    bert["in_time"] = json!(84);
    bert["late"] = json!(16);
    bert["dropped"] = json!(5);
    bert["answers"] = json!(100);
    bert["latency"] = json!([[30.0, 0], [60.0, 84], [180.0, 100]]);
    bert["batches"] = json!([[4, 25]]);
    let pool = &mut status["pools"][1];
    pool["busy"] = json!(0.47);
    pool["bad"] = json!(0.029);
    pool["advised_executors"] = json!(5);
    pool["busy_s"] = json!([12.5, 15.0, 10.0, 10.1]);
    status
}
