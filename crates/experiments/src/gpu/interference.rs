//! The experiment about neighbours: measured, fitted, tried on pairs of models that were not seen.

use std::path::Path;
use std::sync::Arc;

use fermata_chart::{Axis, Lines, Series, Shape};
use fermata_engine::Seat;
use fermata_files::{CoefficientsRow, FORMAT, INTERFERENCE, UsageRow, output};
use serde::Serialize;

use super::choice::choose;
use super::fit::{self, Errors, Fitted};
use super::neighbours::{Beside, Neighbours, Taken};
use super::zoo::{MODELS, NEIGHBOURS};
use super::{Bench, met, percent, shares, write_json};
use crate::document::{Section, Table, figure};
use crate::trials::symphony::Meter;

const BATCHES: [usize; 3] = [1, 8, 32];
const SPLITS: [u32; 3] = [20, 40, 50];
/// How many pairs are run.
const PAIRS: usize = 180;
/// About how long each, and how long is pressed, in milliseconds.
const TIME: f64 = 40.0;
/// The error at the 90th percentile that is asked for.
const ERROR_MAX: f64 = 0.10;

/// Everything, as it is written.
#[derive(Debug, Serialize)]
struct Written<'a> {
    format: u32,
    device: &'a str,
    models: &'a [&'static str],
    coefficients: CoefficientsRow,
    errors: &'a Fitted,
    usage: &'a [Taken],
    pairs: &'a [Beside],
}

pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Section> {
    let rig = bench.args;
    // Two seats side by side need the GPU otherwise than one alone.
    rig.release();
    let nets = &MODELS[..NEIGHBOURS];
    let names: Vec<&'static str> = nets.iter().map(|net| net.name()).collect();
    let count = rig.count(PAIRS, 60);
    bench.progress.expect(1 + nets.len() * BATCHES.len() + count);
    let (workers, gpu) = (rig.workers(), &rig.device);
    workers.run_side_by_side()?;
    let seats: Vec<Arc<dyn Seat>> = (0..2).map(|_| workers.seat(gpu)).collect::<Result<_, _>>()?;
    let most = BATCHES[BATCHES.len() - 1];
    let mut subjects = rig.load(&seats, nets, most)?;
    bench.progress.finish_one();
    let (second, first) = (subjects.pop(), subjects.pop());
    let subjects = [first, second].map(|subjects| subjects.expect("there are two seats"));
    let sides = [seats[0].as_ref(), seats[1].as_ref()];
    let mut neighbours = Neighbours::new(sides, subjects, rig.enough(TIME), rig.time(TIME));
    let done = || bench.progress.finish_one();
    let taken = neighbours.usages(&BATCHES, &done)?;
    let chosen = choose(nets.len(), &BATCHES, &SPLITS, count, rig.seed);
    let pairs = neighbours.pairs(&chosen, &done)?;
    drop(neighbours);
    let Some(fitted) = fit::learn(nets.len(), &taken, &pairs, rig.seed) else {
        anyhow::bail!("the pairs that were measured determine nothing");
    };
    let written = Written {
        format: FORMAT,
        device: &gpu.name,
        models: &names,
        coefficients: fitted.coefficients.into(),
        errors: &fitted,
        usage: &taken,
        pairs: &pairs,
    };
    write_json(bench, "interference", &written)?;
    std::fs::create_dir_all(&rig.profiles)?;
    let text = serde_json::to_string_pretty(&written)? + "\n";
    output::write_file(&rig.profiles.join(INTERFERENCE), &text)?;
    tell_profiles(&rig.profiles, &gpu.name, &names, &taken)?;
    Ok(section(&names, &taken, &pairs, &fitted, rig.seed))
}

/// What a model uses goes into its profile, if it has one.
fn tell_profiles(
    folder: &Path,
    device: &str,
    names: &[&str],
    taken: &[Taken],
) -> anyhow::Result<()> {
    for (model, name) in names.iter().enumerate() {
        if let Some(mut profile) = shares::read(folder, device, name) {
            profile.usage = usage_of(taken, model);
            shares::write(folder, &profile)?;
        }
    }
    Ok(())
}

/// What a model uses of a whole GPU, on average over its batches.
fn usage_of(taken: &[Taken], model: usize) -> Option<UsageRow> {
    let of: Vec<_> = taken.iter().filter(|taken| taken.model == model).map(fit::whole).collect();
    let mean = |part: fn(&fermata_plan::shares::Usage) -> f64| {
        (of.iter().map(part).sum::<f64>() / of.len() as f64).clamp(0.0, 1.0)
    };
    (!of.is_empty()).then(|| UsageRow { l2: mean(|used| used.l2), dram: mean(|used| used.dram) })
}

fn section(
    names: &[&str],
    taken: &[Taken],
    pairs: &[Beside],
    fitted: &Fitted,
    seed: u64,
) -> Section {
    let mut section = Section::default();
    section.say(format!(
        "What each model takes of what shares have in common, on one half of the GPU: the part of \
         its bandwidth that a presser on the other half loses \
         (reading memory that fits into the L2 cache, and memory that does not), and how much \
         longer the model takes meanwhile, at batches of {}:",
        BATCHES.map(|batch| batch.to_string()).join(", ")
    ));
    let mut table =
        Table::new(["model", "takes of L2", "of memory", "longer beside L2", "beside memory"]);
    for (model, name) in names.iter().enumerate() {
        let of: Vec<&Taken> = taken.iter().filter(|taken| taken.model == model).collect();
        let cell = |part: fn(&Taken) -> f64| {
            of.iter().map(|taken| percent(part(taken))).collect::<Vec<_>>().join(", ")
        };
        table.add([
            (*name).to_owned(),
            cell(|taken| taken.l2),
            cell(|taken| taken.dram),
            cell(|taken| taken.bears_l2),
            cell(|taken| taken.bears_dram),
        ]);
    }
    section.say(table.markdown());
    let mut factors: Vec<f64> = pairs.iter().flat_map(Beside::factors).collect();
    factors.sort_by(f64::total_cmp);
    let at = |part: f64| factors[((factors.len() - 1) as f64 * part) as usize];
    section.say(format!(
        "{} pairs side by side on shares of 20/80, 40/60 and 50/50 %, chosen by seed {seed}, {} \
         factors (median together over median alone on the same share): \
         half are below {:.3}, 90 % below {:.3}, the highest is {:.3}. Coefficients are fitted to \
         {} of them; the errors are those on the other {}, all of them of \
         pairs of models that were not seen together.",
        pairs.len(),
        factors.len(),
        at(0.5),
        at(0.9),
        at(1.0),
        fitted.learnt,
        fitted.tried,
    ));
    let mut table = Table::new([
        "model of interference",
        "50 % within",
        "90 % within",
        "95 % within",
        "at most",
        "met",
    ]);
    let mut row = |name: &str, errors: Errors, asked: bool| {
        let [half, most, nearly] = [errors.p50, errors.p90, errors.p95].map(percent);
        let (limit, verdict) = match asked {
            true => (percent(ERROR_MAX), met(errors.p90 <= ERROR_MAX).to_owned()),
            false => (String::new(), String::new()),
        };
        table.add([name.to_owned(), half, most, nearly, limit, verdict]);
    };
    row("linear (gpulet 4.4)", fitted.linear, true);
    if let Some(bearing) = fitted.bearing {
        row("linear, and what each bears", bearing, false);
    }
    row("none: a factor of 1", fitted.none, false);
    section.say(table.markdown());
    let c = fitted.coefficients;
    section.say(format!(
        "The linear model, which planning uses (gpulet's: 10.26 % at 90 %): a batch takes {:.3} + \
         {:.3} L2 + {:.3} L2' + {:.3} DRAM + {:.3} DRAM' times as long, at least once, with ' for \
         the neighbour.",
        c.constant, c.own_l2, c.other_l2, c.own_dram, c.other_dram
    ));
    section.show("interference", "predicted and measured factors", picture(taken, pairs, fitted));
    section
}

fn picture(taken: &[Taken], pairs: &[Beside], fitted: &Fitted) -> String {
    let mut points = Vec::new();
    for pair in pairs {
        let choice = pair.choice;
        let used = |side: usize| {
            let (model, batch) = (choice.models[side], choice.batches[side]);
            fit::usage(taken, model, batch, choice.percents[side])
        };
        if let (Some(first), Some(second)) = (used(0), used(1)) {
            let [one, other] = pair.factors();
            points.push((one, fitted.coefficients.factor(first, second)));
            points.push((other, fitted.coefficients.factor(second, first)));
        }
    }
    let highest = points.iter().map(|(measured, _)| *measured).fold(1.1, f64::max);
    let dots =
        Series { name: "a model of a pair".to_owned(), points, shape: Shape::Dots, dashed: false };
    let exact = Series {
        name: "exact".to_owned(),
        points: vec![(1.0, 1.0), (highest, highest)],
        shape: Shape::Line,
        dashed: true,
    };
    let lines = Lines {
        title: "How many times as long a model takes beside its neighbour".to_owned(),
        x: Axis::fitting("measured"),
        y: Axis::fitting("by the linear model"),
        series: vec![dots, exact],
        marks: Vec::new(),
    };
    figure(
        "Neighbours",
        "two models on two shares of one GPU",
        vec![(460.0, vec![Box::new(lines)])],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::choice::Choice;

    #[test]
    fn the_section_says_how_good_the_linear_model_is() {
        let taken: Vec<Taken> = (0..2)
            .flat_map(|model| {
                let of =
                    move |batch| Taken { model, batch, l2: 0.125, dram: 0.9, ..Taken::default() };
                BATCHES.map(of)
            })
            .collect();
        let pairs = [Beside {
            choice: Choice { models: [0, 1], batches: [1, 8], percents: [20, 80] },
            alone_ms: [1.0, 2.0],
            together_ms: [1.1, 2.5],
        }];
        let errors = |p90| Errors { p50: 0.01, p90, p95: 0.2 };
        let fitted = |p90| Fitted {
            coefficients: fermata_plan::shares::Coefficients::default(),
            linear: errors(p90),
            bearing: None,
            none: errors(0.5),
            learnt: 10,
            tried: 4,
        };
        let text = |p90| section(&["a", "b"], &taken, &pairs, &fitted(p90), 1).body;
        assert!(text(0.08).contains("| 1.0 % | 8.0 % | 20.0 % | 10.0 % | yes |"), "{}", text(0.08));
        assert!(text(0.12).contains("| 12.0 % | 20.0 % | 10.0 % | **no** |"));
        assert!(text(0.1).contains("the highest is 1.250"));
        // More than all of a GPU is all of it.
        assert_eq!(usage_of(&taken, 0), Some(UsageRow { l2: 0.25, dram: 1.0 }));
        assert_eq!(usage_of(&taken, 7), None);
    }
}
