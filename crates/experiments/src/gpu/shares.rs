//! Profiles over batch and share, written for `fermata plan` and `fermata sim`.

use std::path::Path;

use anyhow::{Context, ensure};
use fermata_chart::{Axis, Lines, Series};
use fermata_engine::Gpu;
use fermata_files::{FORMAT, MeasuredFile, ShareRow, output};
use fermata_onnx::zoo::Net;

use super::lab::{BATCHES, Lab};
use super::rig::Rig;
use super::subject::sweep;
use super::zoo::{MODELS, PRECISION};
use super::{Bench, write_json};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

/// In percent: those that planning cuts GPUs into.
const SHARES: [u32; 6] = [20, 40, 50, 60, 80, 100];
/// The batches of the table.
const SHOWN: [usize; 3] = [1, 8, 32];
/// About how long a size is measured on a share, in milliseconds.
const TIME: f64 = 25.0;

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    bench.progress.expect(MODELS.len() * SHARES.len());
    let mut lab = rig.lab()?;
    lab.expect(&MODELS)?;
    let mut all = measure(rig, &mut lab, &MODELS, &SHARES, &|| bench.progress.finish_one())?;
    for measured in &mut all {
        // What it uses beside others is measured by another experiment.
        measured.usage =
            read(&rig.profiles, &rig.device.name, &measured.model).and_then(|before| before.usage);
        write(&rig.profiles, measured)?;
    }
    lab.take(100)?;
    write_json(bench, "shares", &all)?;
    Ok(section(&all))
}

/// Models over all sizes on these shares. Each share is taken once, since everything is made ready
/// for it then.
pub(super) fn measure(
    rig: &Rig,
    lab: &mut Lab,
    nets: &[Net],
    percents: &[u32],
    done: &dyn Fn(),
) -> anyhow::Result<Vec<MeasuredFile>> {
    let Gpu { name, multiprocessors, .. } = lab.gpu.clone();
    let mut all = Vec::new();
    for &net in nets {
        let captured = lab.present(net)?.subject.sizes();
        let runs = |size: &usize| captured.contains(size) || Some(size) > captured.last();
        ensure!(BATCHES.iter().all(runs), "{net}: a batch that is measured is not run as it is");
        all.push(MeasuredFile {
            format: FORMAT,
            model: net.name().to_owned(),
            device: name.clone(),
            multiprocessors,
            precision: PRECISION.to_owned(),
            captured,
            batches: BATCHES.into(),
            shares: Vec::new(),
            usage: None,
        });
    }
    for &percent in percents {
        let multiprocessors = lab.take(percent)?;
        for (measured, &net) in all.iter_mut().zip(nets) {
            let subject = &mut lab.present(net)?.subject;
            let looped = sweep(subject, &BATCHES, rig.enough(TIME))?;
            measured.shares.push(ShareRow {
                percent,
                multiprocessors,
                median_ms: looped.iter().map(|looped| looped.median().as_ms()).collect(),
                tail_ms: looped.iter().map(|looped| looped.tail().as_ms()).collect(),
            });
            done();
        }
    }
    Ok(all)
}

/// The profile of a model on a device, if there is one that makes sense.
pub(super) fn read(folder: &Path, device: &str, model: &str) -> Option<MeasuredFile> {
    let text = std::fs::read_to_string(folder.join(format!("{model}.json"))).ok()?;
    let file: MeasuredFile = serde_json::from_str(&text).ok()?;
    (file.device == device && file.check().is_ok()).then_some(file)
}

/// Writes the profile of a model.
pub(super) fn write(folder: &Path, measured: &MeasuredFile) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot be made", folder.display()))?;
    let file = folder.join(format!("{}.json", measured.model));
    output::write_file(&file, &(serde_json::to_string_pretty(measured)? + "\n"))
}

fn section(all: &[MeasuredFile]) -> Section {
    let mut section = Section::default();
    section.say(
        "Milliseconds of device time on a share, medians. Every model is measured on each share \
         alone; the files \
         have more batch sizes, and what 99 % did not exceed. A share has the multiprocessors next \
         to its percentage, in the GPU's steps.",
    );
    let percents: Vec<u32> =
        all.first().map_or(Vec::new(), |one| one.shares.iter().map(|row| row.percent).collect());
    let head = ["model, batch".to_owned()].into_iter();
    let mut table = Table::new(head.chain(percents.iter().map(|percent| format!("{percent} %"))));
    for measured in all {
        for batch in SHOWN {
            let Some(at) = measured.batches.iter().position(|&size| size == batch) else {
                continue;
            };
            let cells = measured.shares.iter().map(|row| format!("{:.2}", row.median_ms[at]));
            table.add([format!("{}, {batch}", measured.model)].into_iter().chain(cells));
        }
    }
    section.say(table.markdown());
    section.show("shares", "latency by share", picture(all));
    section
}

fn picture(all: &[MeasuredFile]) -> String {
    let panel = |batch: usize| -> Box<dyn fermata_chart::Panel> {
        let line = |measured: &MeasuredFile| {
            let at = measured.batches.iter().position(|&size| size == batch)?;
            let point = |row: &ShareRow| (f64::from(row.percent), row.median_ms[at]);
            let points = measured.shares.iter().map(point).collect();
            Some(Series::line(measured.model.clone(), points))
        };
        Box::new(Lines {
            title: format!("Batches of {batch}"),
            x: Axis::log("% of the GPU"),
            y: Axis::log("milliseconds"),
            series: all.iter().filter_map(line).collect(),
            marks: Vec::new(),
        })
    };
    let device = all.first().map_or("", |one| one.device.as_str());
    figure("Latency by share", device, vec![(420.0, SHOWN.map(panel).into())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> MeasuredFile {
        let row = |percent: u32| ShareRow {
            percent,
            multiprocessors: percent,
            median_ms: vec![1.0, 200.0 / f64::from(percent)],
            tail_ms: vec![1.5, 220.0 / f64::from(percent)],
        };
        MeasuredFile {
            format: FORMAT,
            model: "net".to_owned(),
            device: "a GPU".to_owned(),
            multiprocessors: 100,
            precision: PRECISION.to_owned(),
            batches: vec![1, 8],
            captured: vec![1, 8],
            shares: vec![row(20), row(100)],
            usage: None,
        }
    }

    #[test]
    fn the_section_has_every_share_of_every_model() {
        let text = section(&[measured()]).body;
        assert!(text.contains("| model, batch | 20 % | 100 % |"), "{text}");
        assert!(text.contains("| net, 8 | 10.00 | 2.00 |"), "{text}");
        assert!(!text.contains("net, 32"), "{text}");
    }

    #[test]
    fn what_is_shown_is_measured() {
        assert!(SHOWN.iter().all(|size| BATCHES.contains(size)));
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = std::env::temp_dir().join(format!("fermata-shares-{}", std::process::id()));
        write(&folder, &measured()).unwrap();
        assert_eq!(read(&folder, "a GPU", "net"), Some(measured()));
        assert_eq!(read(&folder, "another GPU", "net"), None);
        assert_eq!(read(&folder, "a GPU", "other"), None);
        std::fs::write(folder.join("bad.json"), "{}").unwrap();
        assert_eq!(read(&folder, "a GPU", "bad"), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
