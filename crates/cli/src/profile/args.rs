//! What can be said to `fermata profile`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args as Arguments;
use clap::builder::FalseyValueParser;
use fermata_engine::Signature;
use fermata_files::InputError;

/// Measures how long batches of each size take, up to the SLO, and keeps it beside the model, where
/// `fermata serve` finds it.
#[derive(Debug, Arguments)]
#[command(after_help = HELP)]
pub(crate) struct ProfileArgs {
    /// A model repository, the folder of a model, or an ONNX file.
    pub(crate) path: PathBuf,

    /// Of a repository, only this model; several may be given.
    #[arg(long, value_name = "NAME", env = "FERMATA_MODEL", value_delimiter = ',')]
    pub(crate) model: Vec<String>,

    /// The longest latency of interest, in place of the SLO of the model's fermata.toml. A file
    /// alone needs it.
    #[arg(long, value_name = "MS", env = "FERMATA_SLO_MS")]
    pub(crate) slo_ms: Option<f64>,

    /// Threads of the engine; as many as there are cores, if not given. Give what is served with.
    #[arg(
        long,
        value_name = "N",
        env = "FERMATA_CPU_THREADS",
        value_parser = clap::value_parser!(u64).range(1..=1024)
    )]
    pub(crate) threads: Option<u64>,

    /// Measure on a GPU, by its number, in place of the processors. `fermata serve --gpus` finds
    /// it.
    #[arg(long, value_name = "N", env = "FERMATA_GPU")]
    pub(crate) gpu: Option<usize>,

    /// With --gpu: on shares of it, in percent, one after the other; the whole GPU, if not given.
    #[arg(
        long,
        value_name = "PERCENT",
        env = "FERMATA_PROFILE_SHARES",
        value_delimiter = ',',
        requires = "gpu"
    )]
    pub(crate) share: Vec<u32>,

    /// The shape of an input, without the batch, where the model takes any: `pixels:3,224,224`.
    /// Otherwise that of `[profile.shapes]` in fermata.toml, or 1 along each such axis.
    #[arg(long, value_name = "INPUT:SHAPE", env = "FERMATA_SHAPE", value_delimiter = ' ')]
    pub(crate) shape: Vec<String>,

    /// Print JSON: a list of models.
    #[arg(long, env = "FERMATA_JSON", value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,

    /// Draw latency and throughput by batch size.
    #[arg(long, value_name = "OUT.svg", env = "FERMATA_PLOT")]
    pub(crate) plot: Option<PathBuf>,

    /// Measure again what was measured before.
    #[arg(long, env = "FERMATA_FORCE", value_parser = FalseyValueParser::new())]
    pub(crate) force: bool,
}

const HELP: &str = "The tail is what 99 of 100 batches do not exceed; it is what batches are \
                    planned with. Profiles are \
kept in NAME/VERSION/.fermata, or in the user's cache where that cannot be written, and used again \
for the same file, \
engine, device, threads and shapes.

Examples:
  fermata profile models                              every model of a repository
  fermata profile models --model resnet50 --force     one of them, again
  fermata profile models/resnet50 --slo-ms 100        up to another latency
  fermata profile net.onnx --slo-ms 50 --shape pixels:3,224,224 --plot net.svg
  fermata profile models --gpu 0 --share 20,50,100    on a GPU, and on shares of it
  fermata profile models --json | jq '.[] | {name, best: (.batches | last)}'";

/// Reads `--shape`.
pub(super) fn check_shapes(given: &[String]) -> Result<BTreeMap<String, Vec<i64>>, InputError> {
    let mut shapes = BTreeMap::new();
    for text in given {
        // Names of inputs may well have colons.
        let read = text.rsplit_once(':').and_then(|(name, axes)| {
            let axes: Result<Vec<i64>, _> =
                axes.split(',').map(|axis| axis.trim().parse()).collect();
            let axes = axes.ok().filter(|axes| axes.iter().all(|&axis| axis > 0))?;
            (!name.is_empty()).then(|| (name.to_owned(), axes))
        });
        let Some((name, axes)) = read else {
            let reason = format!("'{}' is not like pixels:3,224,224", text.escape_default());
            return Err(InputError::Argument { name: "--shape", reason });
        };
        shapes.insert(name, axes);
    }
    Ok(shapes)
}

/// Refuses shapes that the model does not take.
pub(super) fn check_fit(
    shapes: &BTreeMap<String, Vec<i64>>,
    signature: &Signature,
) -> Result<(), InputError> {
    for (name, shape) in shapes {
        let refuse = |reason: String| Err(InputError::Argument { name: "--shape", reason });
        let Some(spec) = signature.inputs.iter().find(|spec| spec.name == *name) else {
            let known: Vec<&str> = signature.inputs.iter().map(|spec| spec.name.as_str()).collect();
            let name = name.escape_default();
            return refuse(format!("the model has no input '{name}', but {}", known.join(", ")));
        };
        let fits = |(&is, &may): (&i64, &i64)| may == -1 || is == may;
        if shape.len() != spec.shape.len() || !shape.iter().zip(&spec.shape).all(fits) {
            return refuse(format!("input '{name}' has {:?}, not {shape:?}", spec.shape));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_from_the_last_colon() {
        let read = |text: &str| check_shapes(&[text.to_owned()]).map_err(|error| error.to_string());
        assert_eq!(read("x:3,224").unwrap()["x"], [3, 224]);
        assert_eq!(read("serving:0: 7").unwrap()["serving:0"], [7]);
        for bad in ["", "x", "x:", ":1", "x:0", "x:-1", "x:3,", "x:3,a"] {
            assert!(read(bad).unwrap_err().contains("is not like pixels:3,224,224"), "{bad}");
        }
    }
}
