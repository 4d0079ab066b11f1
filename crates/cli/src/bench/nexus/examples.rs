//! The worked examples of the papers, which must come out exactly.

use fermata_core::{Profile, Span};
use fermata_plan::{Turn, shortest_round};

use super::Bench;
use crate::bench::document::{Section, Table};

/// All of them.
pub(super) fn run(_bench: &Bench<'_>) -> anyhow::Result<Section> {
    let mut section = Section::default();
    rounds(&mut section);
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
        "**Squishy packing (Nexus 4.1).** Model A at 64 requests a second shares a GPU with B or C, 32 each. A batch takes \
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
