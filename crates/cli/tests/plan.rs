//! `fermata plan` as users run it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs;
use std::process::Output;

use common::Folder;
use serde_json::Value;

const SMALL: &str = r#"
[[demand]]
model = "resnet50"
alpha_ms = 1.053
beta_ms = 5.072
slo_ms = 40
rate = 900
memory_mb = 98
[[demand]]
model = "table"
latency_ms = [4.0, 5.0, 5.5, 6.5]
slo_ms = 30
rate = 100
copies = 3
[[demand]]
model = "slow"
alpha_ms = 2
beta_ms = 10
slo_ms = 100
rate = 50
arrivals = "gamma:0.5"
"#;

const KINDS: &str = r#"
[[gpu]]
name = "large"
memory_gb = 40
price = 4.0
[[gpu]]
name = "small"
memory_mb = 8000
price = 1.0
"#;

const QUERY: &str = r#"
[[query]]
name = "traffic"
slo_ms = 300
rate = 40
[[query.node]]
model = "detector"
alpha_ms = 6.1
beta_ms = 9.5
[[query.node]]
model = "cars"
after = ["detector"]
gamma = 2
alpha_ms = 1.1
beta_ms = 5.0
"#;

const METHODS: [&str; 5] = ["pools", "squishy", "exact", "elastic", "shares"];

fn small() -> Folder {
    let folder = Folder::new();
    folder.write("small.toml", SMALL);
    folder
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).unwrap()
}

/// The one line of an error, and the exit code.
fn error(output: &Output) -> (String, i32) {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    (text, output.status.code().unwrap())
}

/// The members of all pools.
fn members(plan: &Value) -> Vec<&Value> {
    let pools = plan["pools"].as_array().unwrap();
    pools.iter().flat_map(|pool| pool["members"].as_array().unwrap()).collect()
}

#[test]
fn every_method_serves_every_demand_and_json_has_the_promised_shape() {
    let folder = small();
    for method in METHODS {
        let plan = json(&folder.fermata(&["plan", "small.toml", "--json", "--method", method]));
        assert_eq!(plan["method"], method);
        let (gpus, bound) = (plan["gpus"].as_u64().unwrap(), plan["lower_bound"].as_u64().unwrap());
        assert!(1 <= bound && bound <= gpus, "{method}: {bound} {gpus}");
        assert!(plan["cost"].is_null());
        assert_eq!(plan["infeasible"], Value::Array(Vec::new()));
        assert!(plan.get("confirmed").is_none() && plan.get("moves").is_none());
        for (model, rate) in [("resnet50", 900.0), ("table-1", 100.0), ("slow", 50.0)] {
            let of = members(&plan).into_iter().filter(|member| member["model"] == model);
            let served: f64 = of.map(|member| member["rate"].as_f64().unwrap()).sum();
            assert!((served / rate - 1.0).abs() < 1e-6, "{method}: {model} {served}");
        }
        for pool in plan["pools"].as_array().unwrap() {
            assert_eq!(pool["kind"], "gpu");
            assert_eq!(pool["round_ms"].is_null(), method == "pools");
            assert!(pool["gpus"].as_array().unwrap().iter().all(|gpu| gpu.as_u64() < Some(gpus)));
            assert!((1..=100).contains(&pool["share"].as_u64().unwrap()));
        }
        for member in members(&plan) {
            assert!(member["latency_ms"].as_f64() <= member["slo_ms"].as_f64());
            assert!(member["batch"].as_u64() >= Some(1));
            assert!(member.get("bad_rates").is_none());
        }
    }
}

#[test]
fn the_table_tells_gpus_models_and_cost() {
    let folder = small();
    folder.write("kinds.toml", &format!("gpus = 20\n{KINDS}{SMALL}"));
    let text = text(&folder.fermata(&["plan", "kinds.toml", "--method", "exact"]));
    for words in ["5 demands, 1,250 requests", "method exact", "cost an hour", "small at 1.00"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    for model in ["resnet50", "table-1", "table-2", "table-3", "slow"] {
        assert!(text.contains(model), "{model}: {text}");
    }
    assert!(!text.contains("large"), "{text}");
}

#[test]
fn a_pool_is_confirmed_with_the_fewest_gpus() {
    let folder = small();
    let args = ["plan", "small.toml", "--confirm", "--json", "--requests", "30000"];
    let plan = json(&folder.fermata(&args));
    let confirmed = &plan["confirmed"];
    assert_eq!(confirmed["in_time"], true);
    assert_eq!(confirmed["seeds"], serde_json::json!([1, 2]));
    assert!(confirmed["requests"].as_u64().unwrap() > 25_000);
    for member in members(&plan) {
        let bad = member["bad_rates"].as_array().unwrap();
        assert!(bad.iter().all(|bad| (0.0..=0.01).contains(&bad.as_f64().unwrap())));
        assert!(member["p99_ms"].as_f64() <= member["slo_ms"].as_f64());
    }
    let gpus = plan["gpus"].as_u64().unwrap();
    let fewer = format!("gpus = {}\n{SMALL}", gpus - 1);
    folder.write("small.toml", &fewer);
    let output = folder.fermata(&args);
    assert_eq!(output.status.code(), Some(3));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["gpus"], gpus - 1);
    assert!(!plan["infeasible"].as_array().unwrap().is_empty());
    assert_eq!(folder.fermata(&args).stdout, output.stdout, "the same seed, the same answer");
}

#[test]
fn plans_are_tried_with_spare_gpus_released_unless_the_file_says_latency() {
    let folder = small();
    folder.write("release.toml", &format!("spare = \"release\"\n{SMALL}"));
    folder.write("latency.toml", &format!("spare = \"latency\"\n{SMALL}"));
    let policy = |file: &str| {
        let args = ["plan", file, "--confirm", "--json", "--requests", "5000"];
        let plan: Value = serde_json::from_slice(&folder.fermata(&args).stdout).unwrap();
        plan["confirmed"]["policy"].as_str().unwrap().to_owned()
    };
    assert_eq!(policy("small.toml"), "fermata:release");
    assert_eq!(policy("release.toml"), "fermata:release");
    assert_eq!(policy("latency.toml"), "fermata");
}

#[test]
fn rounds_are_tried_as_they_are() {
    let folder = small();
    for method in ["exact", "shares"] {
        let args = ["plan", "small.toml", "--method", method, "--json"];
        let planned = json(&folder.fermata(&args));
        let args = [&args[..], &["--confirm", "--requests", "5000"]].concat();
        let output = folder.fermata(&args);
        let tried: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(tried["gpus"], planned["gpus"]);
        let in_time = tried["confirmed"]["in_time"].as_bool().unwrap();
        assert_eq!(output.status.code(), Some(if in_time { 0 } else { 3 }));
    }
}

#[test]
fn a_plan_that_follows_itself_moves_nothing() {
    let folder = small();
    for method in ["pools", "squishy", "exact"] {
        let args = ["plan", "small.toml", "--method", method];
        let first = folder.fermata(&[&args[..], &["--json"]].concat());
        folder.write("plan.json", &text(&first));
        let args = [&args[..], &["--previous", "plan.json"]].concat();
        let next = json(&folder.fermata(&[&args[..], &["--json"]].concat()));
        assert_eq!(next["pools"], json(&first)["pools"], "{method}");
        assert_eq!(next["moves"]["loads"], serde_json::json!({}));
        assert!(text(&folder.fermata(&args)).contains("nothing moves"), "{method}");
    }
}

#[test]
fn what_moves_and_what_is_not_known_is_said() {
    let folder = small();
    let plan = text(&folder.fermata(&["plan", "small.toml", "--json", "--method", "exact"]));
    folder.write("plan.json", &plan.replace("\"slow\"", "\"gone\""));
    let args = ["plan", "small.toml", "--method", "exact", "--previous", "plan.json"];
    let text = text(&folder.fermata(&args));
    assert!(text.contains("not in the file, and ignored: 'gone'"), "{text}");
    assert!(text.contains("load slow"), "{text}");
}

#[test]
fn what_cannot_be_met_is_named_with_what_would_help() {
    let folder = Folder::new();
    let cases = [
        ("slo_ms = 40", "slo_ms = 6", "resnet50: slo_ms 6 is below the 6.125 ms", "at least 6.125"),
        ("memory_mb = 98", "memory_mb = 50000", "resnet50: needs 50000 MB", "of at least 50000 MB"),
        ("rate = 900", "rate = 9000", "resnet50: no GPU is left for it", "GPUs"),
    ];
    for (from, to, what, help) in cases {
        folder.write("hard.toml", &format!("gpus = 3\n{KINDS}{}", SMALL.replace(from, to)));
        let output = folder.fermata(&["plan", "hard.toml"]);
        let (error, code) = error(&output);
        assert_eq!(code, 3);
        assert!(error.contains("of 5 demands cannot be met"), "{error}");
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.contains(what));
        let line = line.unwrap_or_else(|| panic!("{what}: {text}"));
        assert!(line.contains(help), "{line}");
    }
}

#[test]
fn rounds_say_when_a_pool_would_do() {
    let folder = small();
    folder.write("tight.toml", &SMALL.replace("slo_ms = 40", "slo_ms = 10"));
    let output = folder.fermata(&["plan", "tight.toml", "--method", "exact", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let named = &plan["infeasible"][0];
    assert_eq!((&named["model"], &named["reason"]), (&"resnet50".into(), &"slo_too_short".into()));
    assert_eq!(named["needs"]["slo_ms"], 12.25);
    assert!(named["text"].as_str().unwrap().contains("use --method pools"), "{named}");
    assert!(folder.fermata(&["plan", "tight.toml"]).status.success());
}

#[test]
fn a_query_becomes_demands_that_keep_its_objective_together() {
    let folder = Folder::new();
    folder.write("query.toml", QUERY);
    let plan = json(&folder.fermata(&["plan", "query.toml", "--json"]));
    let nodes = plan["queries"][0]["nodes"].as_array().unwrap();
    let sum: f64 = nodes.iter().map(|node| node["slo_ms"].as_f64().unwrap()).sum();
    assert!((299.0..=300.0).contains(&sum), "{sum}");
    assert_eq!(nodes[1]["rate"], 80.0);
    let models: Vec<&Value> = members(&plan).into_iter().map(|member| &member["model"]).collect();
    assert_eq!(models, ["traffic/detector", "traffic/cars"]);
    folder.write("query.toml", &QUERY.replace("slo_ms = 300", "slo_ms = 30"));
    let output = folder.fermata(&["plan", "query.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("traffic: slo_ms 30 is below the 43.4 ms"), "{text}");
}

#[test]
fn sweeps_have_a_cell_for_each_point() {
    let folder = small();
    let args = ["plan", "small.toml", "--what-if", "rate=1..4:3,slo=1..2:2"];
    let sweep = json(&folder.fermata(&[&args[..], &["--json", "--plot", "out.svg"]].concat()));
    let points = sweep["what_if"].as_array().unwrap();
    let at = |point: &Value| (point["rate"].as_f64().unwrap(), point["slo"].as_f64().unwrap());
    let expected = [(1.0, 1.0), (1.0, 2.0), (2.5, 1.0), (2.5, 2.0), (4.0, 1.0), (4.0, 2.0)];
    assert_eq!(points.iter().map(at).collect::<Vec<_>>(), expected);
    assert!(points[4]["gpus"].as_u64() > points[0]["gpus"].as_u64());
    assert!(points.iter().all(|point| point["gpus"].as_u64() >= point["lower_bound"].as_u64()));
    let text = text(&folder.fermata(&args));
    assert!(text.contains("SLO x 2") && text.contains("x 2.5"), "{text}");
    assert!(fs::read_to_string(folder.path("out.svg")).unwrap().contains("SLO x 2<"));
}

#[test]
fn every_method_is_drawn() {
    let folder = small();
    for method in METHODS {
        let args = ["plan", "small.toml", "--method", method, "--plot", "out.svg"];
        assert!(folder.fermata(&args).status.success());
        let svg = fs::read_to_string(folder.path("out.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        for words in ["resnet50", &format!("method {method}"), "small.toml"] {
            assert!(svg.contains(words), "{method}: {words}");
        }
    }
    assert_eq!(folder.names(), ["out.svg", "small.toml"]);
}

#[test]
fn profiles_are_read_from_files() {
    let folder = Folder::new();
    folder.write("p.json", r#"[{"name": "net", "planned_ms": [4.0, 5.0]}]"#);
    let file = "[[demand]]\nmodel = \"net\"\nprofile = \"p.json\"\nslo_ms = 20\nrate = 100\n";
    folder.write("plan.toml", file);
    let plan = json(&folder.fermata(&["plan", "plan.toml", "--json"]));
    assert_eq!(plan["gpus"], 1);
    assert_eq!(members(&plan)[0]["batch"], 2);
}

/// A model that takes `2 ms + b ms / share` in batches of up to 8, and the noise that it makes.
fn on_shares(l2: f64) -> String {
    let row = |percent: f64| {
        let latency = |batch: f64| format!("{}", 2.0 + batch * 100.0 / percent);
        let table = [1.0, 4.0, 8.0].map(latency).join(", ");
        format!(
            r#"{{"percent": {percent}, "multiprocessors": 1, "median_ms": [{table}],
                "tail_ms": [{table}]}}"#
        )
    };
    format!(
        r#"{{"format": 1, "model": "net", "device": "a GPU", "multiprocessors": 100,
            "precision": "fp16",
            "batches": [1, 4, 8], "shares": [{}, {}], "usage": {{"l2": {l2}, "dram": 0.1}}}}"#,
        row(20.0),
        row(100.0)
    )
}

/// Neighbours slow a model down by what they use of L2.
const LOUD: &str = r#"{"format": 1, "coefficients":
    {"own_l2": 0, "other_l2": 1, "own_dram": 0, "other_dram": 0, "constant": 1}}"#;

#[test]
fn profiles_by_share_tell_how_models_do_on_shares_and_beside_each_other() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("gpu")).unwrap();
    let demand = |name: &str| {
        format!(
            "[[demand]]\nmodel = \"{name}\"\nprofile = \"gpu/{name}.json\"\nslo_ms = 15\nrate = \
             20\narrivals = \"uniform\"\n"
        )
    };
    folder.write("plan.toml", &(demand("a") + &demand("b")));
    let plan = |method: &str, more: &[&str]| {
        let plan =
            folder.fermata(&[&["plan", "plan.toml", "--json", "--method", method], more].concat());
        json(&plan)
    };
    for method in ["elastic", "shares"] {
        // Quiet ones share a GPU: on a fifth, a batch of one takes 7 ms.
        folder.write("gpu/a.json", &on_shares(0.05));
        folder.write("gpu/b.json", &on_shares(0.05));
        folder.write("gpu/interference.json", LOUD);
        let quiet = plan(method, &["--confirm", "--requests", "1000"]);
        assert_eq!(quiet["gpus"], 1, "{method}");
        let pools = quiet["pools"].as_array().unwrap();
        assert!(pools.iter().any(|pool| pool["share"] != 100), "{method}: {quiet}");
        for pool in pools {
            let alone = 2.0 + 100.0 / pool["share"].as_f64().unwrap();
            let turns = pool["members"].as_array().unwrap().len() as f64;
            let stretch = pool["round_ms"].as_f64().unwrap() / (turns * alone);
            assert!((0.999..1.05).contains(&stretch), "{method}: {pool}");
        }
        assert!(quiet["confirmed"]["in_time"].as_bool().unwrap());
    }
    // The file of neighbours is another one, by its key.
    folder.write(
        "plan.toml",
        &format!("interference = \"gpu/other.json\"\n{}{}", demand("a"), demand("b")),
    );
    let failed = folder.fermata(&["plan", "plan.toml", "--method", "shares"]);
    assert_eq!(failed.status.code(), Some(2));
    folder.write("gpu/other.json", &LOUD.replace("\"constant\": 1", "\"constant\": 3"));
    let loud = plan("shares", &[]);
    let split = loud["pools"].as_array().unwrap().iter().any(|pool| pool["share"] != 100);
    assert!(!split, "three times as long beside a neighbour, shares do not pay: {loud}");
}

#[test]
fn of_two_files_of_neighbours_one_must_be_named() {
    let folder = Folder::new();
    let mut file = String::new();
    for name in ["a", "b"] {
        std::fs::create_dir(folder.path(name)).unwrap();
        folder.write(&format!("{name}/net.json"), &on_shares(0.1));
        folder.write(&format!("{name}/interference.json"), LOUD);
        file += &format!(
            "[[demand]]\nmodel = \"{name}\"\nprofile = \"{name}/net.json\"\nslo_ms = 30\nrate = \
             20\n"
        );
    }
    folder.write("plan.toml", &file);
    let failed = folder.fermata(&["plan", "plan.toml", "--method", "shares"]);
    let said = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(2));
    assert!(
        said.contains("interference: missing: there are") && said.lines().count() == 1,
        "{said}"
    );
    folder.write("plan.toml", &format!("interference = \"a/interference.json\"\n{file}"));
    assert!(folder.fermata(&["plan", "plan.toml", "--method", "shares"]).status.success());
}

#[test]
fn the_examples_can_be_planned() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/");
    let folder = Folder::new();
    for example in ["plan.toml", "zoo.toml", "h200.toml"] {
        let file = format!("{examples}{example}");
        assert!(folder.fermata(&["plan", &file]).status.success(), "{example}");
    }
    // With what was measured on a GPU and on shares of it.
    let file = format!("{examples}h200.toml");
    assert!(folder.fermata(&["plan", &file, "--method", "shares"]).status.success());
}
