//! What of copying, gathering and scattering is not hidden behind compute: wall time from batch to
//! batch over device time.

use fermata_onnx::zoo::Net;
use serde::Serialize;

use super::subject::sweep;
use super::{Bench, met, percent, write_json};
use crate::document::{Section, Table};
use crate::trials::symphony::Meter;

/// The batch that is asked about, and what may show of it at most.
const BATCH: usize = 32;
const SHOWS_MAX: f64 = 0.05;
const BATCHES: [usize; 5] = [1, 8, 16, BATCH, 64];
/// About how long a size is measured, in milliseconds.
const TIME: f64 = 400.0;

#[derive(Clone, Copy, Debug, Serialize)]
struct Found {
    batch: usize,
    device_ms: f64,
    wall_ms: f64,
}

impl Found {
    /// The part of the batch time that is not compute.
    fn shows(self) -> f64 {
        self.wall_ms / self.device_ms - 1.0
    }
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    bench.progress.expect(1);
    let mut lab = rig.lab()?;
    lab.take(100)?;
    let looped = sweep(&mut lab.present(Net::ResNet50)?.subject, &BATCHES, rig.enough(TIME))?;
    let found = looped.iter().zip(BATCHES).map(|(looped, batch)| Found {
        batch,
        device_ms: looped.median().as_ms(),
        wall_ms: looped.period().as_ms(),
    });
    let all: Vec<Found> = found.collect();
    bench.progress.finish_one();
    write_json(bench, "overlap", &all)?;
    Ok(section(&all))
}

fn section(all: &[Found]) -> Section {
    let mut section = Section::default();
    section.say(
        "ResNet50 with 224x224x3 inputs as bytes, batches back to back through `begin` and `wait`: \
         device time is the median of what batches took on the \
         GPU, wall time the mean from one end to the next as the caller sees it, with every input \
         gathered and copied in, and every output copied out and scattered.",
    );
    let mut table =
        Table::new(["batch", "device time, ms", "wall time, ms", "not hidden", "at most", "met"]);
    for found in all {
        let asked = found.batch == BATCH;
        let cells = [
            found.batch.to_string(),
            format!("{:.3}", found.device_ms),
            format!("{:.3}", found.wall_ms),
            percent(found.shows()),
            if asked { percent(SHOWS_MAX) } else { String::new() },
            if asked { met(found.shows() <= SHOWS_MAX).to_owned() } else { String::new() },
        ];
        table.add(cells);
    }
    section.say(table.markdown());
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_hidden_is_the_wall_time_beyond_the_device_time() {
        let found = Found { batch: 32, device_ms: 2.0, wall_ms: 2.08 };
        assert!((found.shows() - 0.04).abs() < 1e-12);
        let text = section(&[found, Found { batch: 64, device_ms: 4.0, wall_ms: 5.0 }]).body;
        assert!(text.contains("| 32 | 2.000 | 2.080 | 4.0 % | 5.0 % | yes |"), "{text}");
        assert!(text.contains("| 64 | 4.000 | 5.000 | 25.0 % |  |  |"), "{text}");
    }
}
