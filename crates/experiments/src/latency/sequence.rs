//! One emulated model under a sequence of loads: a client, two rates, and the client again.

use std::sync::Arc;

use fermata_chart::grouped;
use fermata_core::{Profile, Span};
use fermata_dispatch::ModelSpec;
use fermata_sim::{Answers, LoadPhase, Source, run_phases};

use super::alone::THINK;
use super::{Bench, policy};
use crate::document::{Section, Table};

const ALPHA_MS: f64 = 0.075;
const BETA_MS: f64 = 0.5;
const SLO_MS: f64 = 10.0;
/// How long each load lasts.
const SECONDS: f64 = 3.0;
const POLICIES: [&str; 3] = ["eager", "fermata", "fermata:release"];

/// The loads, in their order.
fn loads() -> [(&'static str, Source); 4] {
    let client = Source::Clients { count: 1, think: THINK };
    [
        ("one client", client),
        ("200 requests/s", Source::Poisson(200.0)),
        ("1,000 requests/s", Source::Poisson(1_000.0)),
        ("one client again", client),
    ]
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let ms = Span::from_ms;
    let profile = Profile::linear(ms(ALPHA_MS), ms(BETA_MS), ms(SLO_MS));
    let profile = profile.expect("a batch takes some time");
    let models = [Arc::new(ModelSpec::uniform(ms(SLO_MS), profile))];
    let length = Span::from_secs(SECONDS);
    let phases = loads().map(|(_, source)| LoadPhase { length, sources: vec![source] });
    let found = bench
        .spread(&POLICIES, |name| run_phases(&models, 1, &phases, policy(name), bench.suite.seed));
    let mut section = Section::default();
    section.say(format!(
        "One emulated model (alpha {ALPHA_MS} ms, beta {BETA_MS} ms), SLO {SLO_MS} ms, on one \
         executor; four loads of {SECONDS} s, one after the other. A client sends its next request \
         {} ms after an answer.",
        THINK.as_ms()
    ));
    section.say(table(&found));
    Ok(section)
}

/// Each load under each policy in a row; `found` is by policy, load and model.
fn table(found: &[Vec<Vec<Answers>>]) -> String {
    let mut table = Table::new([
        "load, policy",
        "answers/s",
        "p50 (ms)",
        "over eager",
        "p99 (ms)",
        "over eager",
        "bad (%)",
    ]);
    for (at, (load, _)) in loads().into_iter().enumerate() {
        let eager = &found[0][at][0];
        for (name, phases) in POLICIES.iter().zip(found) {
            let answers = &phases[at][0];
            let [p50, p99] = [0.5, 0.99].map(|share| {
                let of = |answers: &Answers| answers.quantile(share, 0).as_ms();
                let [own, eager] = [answers, eager].map(of);
                [format!("{own:.3}"), format!("{:.2}", own / eager)]
            });
            let rate = answers.latencies.len() as f64 / SECONDS;
            let first = [format!("{load}, `{name}`"), grouped(rate, 0)].into_iter();
            let bad = format!("{:.2}", 100.0 * answers.bad_rate());
            table.add(first.chain(p50).chain(p99).chain([bad]));
        }
    }
    table.markdown()
}
