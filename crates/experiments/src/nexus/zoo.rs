//! 15,000 requests a second of the A100 zoo: how many GPUs by each method.

use fermata_core::Span;
use fermata_dispatch::Policy;
use fermata_plan::{Demand, Method, Problem, Session, solve};
use fermata_sim::{fewest_near, passes};

use super::Bench;
use crate::document::{Section, Table};
use crate::trials::symphony::{Effort, Meter, Model, Pool, zoo_a100};

const RATE: f64 = 15_000.0;
const GPUS_MAX: usize = 1_000;

/// Every method on the same demands.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let zoo = zoo_a100();
    let rate = RATE / zoo.len() as f64;
    let demand = |model: &Model| Demand::new(model.profile(), Span::from_ms(model.slo_ms), rate);
    let problem = Problem::new(zoo.iter().map(demand).collect());
    let mut section = Section::default();
    section.say(format!(
        "{RATE:.0} requests a second, as many for each of the {} models. The same as a command: \
         `fermata plan examples/zoo.toml --confirm`, and with `--method`.",
        zoo.len()
    ));
    let mut table =
        Table::new(["method", "GPUs", "lower bound of its kind", "not served", "remark"]);
    bench.progress.expect(2);

    // How few GPUs are enough is the question.
    let policy = Policy::RELEASE;
    let planned = solve(&problem, Method::Pools, None);
    let effort = if bench.suite.quick { Effort::QUICK } else { Effort::THOROUGH };
    let requests = effort.requests.max((effort.seconds * RATE) as u64);
    let confirmed = |seed: u64, guess: usize| {
        let scenario = Pool::new(zoo.clone(), guess).scenario(RATE, requests, seed);
        fewest_near(guess, GPUS_MAX, |gpus| passes(&scenario.with_executors(gpus), policy))
    };
    let found: Vec<String> = (bench.suite.seed..bench.suite.seed + 3)
        .map(|seed| {
            confirmed(seed, planned.gpus()).map_or("none".to_owned(), |gpus| gpus.to_string())
        })
        .collect();
    bench.progress.finish_one();
    table.add([
        "pools, confirmed".to_owned(),
        found[0].clone(),
        planned.lower_bound.to_string(),
        "0".to_owned(),
        format!(
            "asked: 55; estimated {}; with other seeds {}; {requests} requests a run",
            planned.gpus(),
            found[1..].join(" and ")
        ),
    ]);
    for (name, method) in METHODS {
        let plan = solve(&problem, method, None);
        let named: Vec<&str> =
            plan.infeasible.iter().map(|each| &zoo[each.demand].name[..]).collect();
        // What cannot be promised in rounds could still be run in batches of one.
        let alone: f64 =
            plan.infeasible.iter().map(|each| least_gpus(&problem.demands[each.demand])).sum();
        let remark = match named.is_empty() {
            true => String::new(),
            false => format!(
                "{}: {alone:.0} GPUs more in batches of one, without a promise",
                named.join(", ")
            ),
        };
        table.add([
            name.to_owned(),
            plan.gpus().to_string(),
            plan.lower_bound.to_string(),
            named.len().to_string(),
            remark,
        ]);
    }
    bench.progress.finish_one();
    section.say(table.markdown());
    Ok(section)
}

/// The methods that plan without trying.
const METHODS: [(&str, Method); 4] = [
    ("squishy", Method::Squishy),
    ("exact", Method::Exact),
    ("elastic", Method::Elastic),
    ("shares", Method::Shares),
];

/// GPUs that run batches of one back to back.
fn least_gpus(demand: &Demand) -> f64 {
    let session = Session::new(0, demand, 0).expect("the model runs on the one kind");
    (demand.rate * session.turn.profile.cost(1) / 1e9).ceil()
}
