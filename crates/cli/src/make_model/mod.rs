//! `fermata make-model`: well-known networks with random weights, as files, to measure machines
//! with.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::builder::FalseyValueParser;
use clap::{Args as Arguments, ValueEnum};
use fermata_chart::grouped;
use fermata_files::{InputError, Table, objective, output};
use fermata_onnx::zoo::{self, Net};
use fermata_onnx::{Model, TensorSpec};

/// The word for every network.
const ALL: &str = "all";

/// Makes ONNX models of well-known networks, with random weights: as fast as the real ones, and
/// their answers mean nothing.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub(crate) struct MakeModelArgs {
    /// Which networks, or `all`.
    #[arg(value_name = "NAME", required_unless_present = "list")]
    names: Vec<String>,

    /// Print which networks there are, and make none.
    #[arg(long, conflicts_with = "names")]
    list: bool,

    /// With which numbers they compute.
    #[arg(long, value_name = "P", env = "FERMATA_PRECISION", default_value = "fp16")]
    precision: Precision,

    /// The file to write; NAME.onnx, if not given.
    #[arg(long, value_name = "FILE", conflicts_with = "repository")]
    out: Option<PathBuf>,

    /// A model repository to write to: NAME/1/model.onnx, and NAME/fermata.toml with --slo-ms.
    #[arg(long, value_name = "FOLDER")]
    repository: Option<PathBuf>,

    /// With --repository: the latency objective of the models.
    #[arg(long, value_name = "MS", requires = "repository")]
    slo_ms: Option<f64>,

    /// The seed of the weights: the same seed gives the same file.
    #[arg(long, value_name = "N", env = "FERMATA_SEED", default_value_t = 1)]
    seed: u64,

    /// Write over files that are there.
    #[arg(long, env = "FERMATA_FORCE", value_parser = FalseyValueParser::new())]
    force: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Precision {
    /// Two bytes.
    Fp16,
    /// Four bytes.
    Fp32,
}

const HELP: &str = "Networks that see images take bytes as decoders give them, image UINT8 [N, \
                    height, width, 3], and \
normalise them themselves; encoders take input_ids and attention_mask INT64 [N, length], at most \
30,521. All answer in FP32.

Examples:
  fermata make-model --list
  fermata make-model resnet50                         resnet50.onnx, in FP16
  fermata make-model resnet50 --precision fp32 --out net.onnx
  fermata make-model resnet50 bert_short --repository models --slo-ms 50
  fermata make-model all --repository models --slo-ms 50
  fermata serve models                                serve them";

/// A model to write, and where.
struct Task {
    net: Net,
    file: PathBuf,
    /// The file with its objective.
    settings: Option<(PathBuf, String)>,
}

/// Runs the command.
pub(crate) fn run(args: &MakeModelArgs) -> anyhow::Result<()> {
    let precision = match args.precision {
        Precision::Fp16 => zoo::Precision::Fp16,
        Precision::Fp32 => zoo::Precision::Fp32,
    };
    if args.list {
        return output::print(&list(precision));
    }
    for task in tasks(args)? {
        let model = task.net.build(precision, args.seed);
        write(&task, &model)?;
        output::print(&format!(
            "{}: {}, {}\n",
            task.net,
            task.file.display(),
            bytes(model.file_bytes())
        ))?;
    }
    Ok(())
}

/// What is to be written, checked whole before anything is.
fn tasks(args: &MakeModelArgs) -> Result<Vec<Task>, InputError> {
    let refuse = |name, reason: String| Err(InputError::Argument { name, reason });
    let nets = nets(&args.names)?;
    args.slo_ms.map(objective).transpose()?;
    if args.out.is_some() && nets.len() > 1 {
        return refuse("--out", "is one file: give --repository for several models".to_owned());
    }
    let task = |net: Net| match (&args.out, &args.repository) {
        (Some(file), _) => Task { net, file: file.clone(), settings: None },
        (None, Some(repository)) => {
            let folder = repository.join(net.name());
            let settings = |ms| (folder.join("fermata.toml"), format!("slo_ms = {ms}\n"));
            let settings = args.slo_ms.map(settings);
            Task { net, file: folder.join("1/model.onnx"), settings }
        }
        (None, None) => {
            Task { net, file: PathBuf::from(format!("{}.onnx", net.name())), settings: None }
        }
    };
    let tasks: Vec<Task> = nets.into_iter().map(task).collect();
    for task in &tasks {
        let files = [Some(&task.file), task.settings.as_ref().map(|(file, _)| file)];
        for file in files.into_iter().flatten() {
            if !args.force && file.exists() {
                let reason =
                    format!("{}: is there already (--force writes over it)", file.display());
                return refuse(
                    if args.repository.is_some() { "--repository" } else { "--out" },
                    reason,
                );
            }
        }
        // The folders of a repository are made; where a single file goes must be there.
        if args.repository.is_none() {
            output::check_writable("--out", &task.file)?;
        }
    }
    Ok(tasks)
}

/// The networks of these names, each once, in order.
fn nets(names: &[String]) -> Result<Vec<Net>, InputError> {
    let mut nets = Vec::new();
    for name in names {
        let found = match name.as_str() {
            ALL => Net::ALL.to_vec(),
            name => {
                let net = name.parse().map_err(|error| {
                    let reason = format!("{error}, {ALL}");
                    InputError::Argument { name: "NAME", reason }
                })?;
                vec![net]
            }
        };
        nets.extend(found);
    }
    nets.sort_unstable();
    nets.dedup();
    Ok(nets)
}

/// Writes a model, and its objective first: a server that polls the repository finds no model
/// without one.
fn write(task: &Task, model: &Model) -> anyhow::Result<()> {
    let failed = |file: &Path| format!("{}: cannot be written", file.display());
    if let Some((file, text)) = &task.settings {
        fs::create_dir_all(file.parent().expect("it is in a folder"))
            .with_context(|| failed(file))?;
        output::write_file(file, text)?;
    }
    // A bare name has an empty folder, which is there.
    let folder = task.file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| model.write(&task.file))
        .with_context(|| failed(&task.file))
}

/// All networks, as a table.
fn list(precision: zoo::Precision) -> String {
    let head = ["name", "what it is", "parameters", "multiply-adds", "file", "inputs", "outputs"];
    let mut table = Table::new(head.into_iter()).left("what it is");
    for net in Net::ALL {
        let model = net.build(precision, 1);
        let cells = [
            net.name().to_owned(),
            net.describe().to_owned(),
            format!("{} M", grouped(model.parameters() as f64 / 1e6, 2)),
            format!("{} M", grouped(model.multiply_adds() as f64 / 1e6, 1)),
            bytes(model.file_bytes()),
            specs(model.inputs()),
            specs(model.outputs()),
        ];
        table.row(cells.into_iter());
    }
    table.render()
}

fn specs(specs: &[TensorSpec]) -> String {
    let spec = |spec: &TensorSpec| {
        let axes: Vec<String> = spec.shape.iter().map(usize::to_string).collect();
        format!("{} {} [N,{}]", spec.name, spec.element, axes.join(","))
    };
    specs.iter().map(spec).collect::<Vec<String>>().join(" ")
}

fn bytes(bytes: usize) -> String {
    format!("{} MB", grouped(bytes as f64 / 1e6, 1))
}
