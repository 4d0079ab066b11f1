//! Device-bound latencies on the whole GPU, and throughput back to back.

use fermata_chart::{Axis, Lines, Series, grouped};
use fermata_onnx::zoo::Net;
use serde::Serialize;

use super::lab::BATCHES;
use super::subject::sweep;
use super::zoo::MODELS;
use super::{Bench, met, write_json};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

/// What is asked of ResNet50: milliseconds at most, by batch.
const ROW: [(usize, f64); 3] = [(1, 0.60), (8, 1.10), (32, 2.9)];
/// The batches of the table.
const SHOWN: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// About how long a size is measured, in milliseconds.
const TIME: f64 = 60.0;

/// What was found of one model.
#[derive(Clone, Debug, Serialize)]
struct Found {
    model: String,
    /// Until it was loaded, and the best of the ways to run it was found; and until all sizes had
    /// run.
    loaded_s: f64,
    ready_s: f64,
    batches: Vec<usize>,
    median_ms: Vec<f64>,
    tail_ms: Vec<f64>,
    /// Back to back, as we see it.
    per_second: Vec<f64>,
}

impl Found {
    fn at(&self, batch: usize, values: &[f64]) -> f64 {
        let at = self.batches.iter().position(|&size| size == batch);
        at.and_then(|at| values.get(at)).copied().unwrap_or(f64::NAN)
    }
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    let sizes = BATCHES;
    bench.progress.expect(2 * MODELS.len());
    let mut all = Vec::new();
    let mut lab = rig.lab()?;
    lab.take(100)?;
    lab.expect(&MODELS)?;
    // Nothing is measured beside what is being loaded.
    for net in MODELS {
        lab.present(net)?;
        bench.progress.finish_one();
    }
    for net in MODELS {
        let present = lab.present(net)?;
        let (loaded_s, ready_s) = (present.loaded_s, present.ready_s);
        let looped = sweep(&mut present.subject, &sizes, rig.enough(TIME))?;
        let rate = |(looped, &size): (&super::looping::Looped, &usize)| {
            size as f64 / looped.period().as_secs().max(1e-9)
        };
        all.push(Found {
            model: net.name().to_owned(),
            loaded_s,
            ready_s,
            batches: sizes.to_vec(),
            median_ms: looped.iter().map(|looped| looped.median().as_ms()).collect(),
            tail_ms: looped.iter().map(|looped| looped.tail().as_ms()).collect(),
            per_second: looped.iter().zip(&sizes).map(rate).collect(),
        });
        bench.progress.finish_one();
    }
    write_json(bench, "latency", &all)?;
    Ok(section(&all, &lab.gpu.name))
}

fn section(all: &[Found], device: &str) -> Section {
    let mut section = Section::default();
    section.say(format!(
        "Milliseconds of device time on all of the {device}, medians, inputs and outputs as \
         clients see them (bytes of images in, FP32 out):"
    ));
    let head = ["model".to_owned()].into_iter().chain(SHOWN.map(|batch| format!("batch {batch}")));
    let mut table = Table::new(head);
    for found in all {
        let cells = SHOWN.map(|batch| shown(found.at(batch, &found.median_ms), 3));
        table.add([found.model.clone()].into_iter().chain(cells));
    }
    section.say(table.markdown());
    if let Some(resnet) = all.iter().find(|found| found.model == Net::ResNet50.name()) {
        let mut table = Table::new(["ResNet50", "measured", "at most", "met"]);
        for (batch, most) in ROW {
            let found = resnet.at(batch, &resnet.median_ms);
            let cells =
                [format!("batch {batch}"), format!("{} ms", shown(found, 3)), format!("{most} ms")];
            table.add(cells.into_iter().chain([met(found <= most).to_owned()]));
        }
        section.say(table.markdown());
    }
    section.say(
        "Requests a second, batches back to back with their inputs copied in and outputs \
                 copied out:",
    );
    let head = ["model".to_owned()].into_iter().chain(SHOWN.map(|batch| format!("batch {batch}")));
    let mut table = Table::new(head);
    for found in all {
        let cells = SHOWN.map(|batch| shown(found.at(batch, &found.per_second), 0));
        table.add([found.model.clone()].into_iter().chain(cells));
    }
    section.say(table.markdown());
    let said =
        |found: &Found| format!("{} {:.1} and {:.1} s", found.model, found.loaded_s, found.ready_s);
    section.say(format!(
        "From a file to a model that runs, with the best of three ways to run it found by \
         measurement (in one way, where kernels take seconds to compile), and to one of which all \
         of {} sizes have run, several models at a time: {}.",
        all.first().map_or(0, |found| found.batches.len()),
        all.iter().map(said).collect::<Vec<_>>().join(", ")
    ));
    section.show("latency", "latency by batch size", picture(all, device));
    section
}

fn shown(value: f64, decimals: usize) -> String {
    if value.is_finite() { grouped(value, decimals) } else { "-".to_owned() }
}

fn picture(all: &[Found], device: &str) -> String {
    let series = |of: fn(&Found) -> &[f64]| -> Vec<Series> {
        let line = |found: &Found| {
            let x = found.batches.iter().map(|&size| size as f64);
            Series::line(found.model.clone(), x.zip(of(found).iter().copied()).collect())
        };
        all.iter().map(line).collect()
    };
    let panel = |title: &str, y: &str, series| {
        Box::new(Lines {
            title: title.to_owned(),
            x: Axis::log("batch"),
            y: Axis::log(y),
            series,
            marks: Vec::new(),
        })
    };
    let latency = panel("Latency", "milliseconds", series(|found| &found.median_ms));
    let rate = panel("Back to back", "requests a second", series(|found| &found.per_second));
    figure("Batches on the whole GPU", device, vec![(420.0, vec![latency, rate])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_tells_whether_the_row_is_met() {
        let found = |ms: f64| Found {
            model: "resnet50".to_owned(),
            loaded_s: 1.5,
            ready_s: 4.0,
            batches: vec![1, 8, 32],
            median_ms: vec![0.5, 1.0, ms],
            tail_ms: vec![0.5, 1.0, ms],
            per_second: vec![2000.0, 8000.0, 12_000.0],
        };
        let good = section(&[found(2.8)], "a GPU");
        assert!(good.body.contains("| batch 32 | 2.800 ms | 2.9 ms | yes |"), "{}", good.body);
        let bad = section(&[found(3.1)], "a GPU");
        assert!(bad.body.contains("| batch 32 | 3.100 ms | 2.9 ms | **no** |"), "{}", bad.body);
        assert!(good.body.contains("| resnet50 | 2,000 | - |"), "{}", good.body);
        assert!(good.body.contains("resnet50 1.5 and 4.0 s."), "{}", good.body);
        assert_eq!(good.files.len(), 1);
    }
}
