//! The models: well-known networks with random weights, made once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fermata_files::output;
use fermata_onnx::zoo::{Net, Precision};

/// What is profiled; the first nine are measured beside each other, too.
pub(super) const MODELS: [Net; 10] = [
    Net::ResNet50,
    Net::ResNet152,
    Net::Vgg16,
    Net::InceptionV3,
    Net::MobileNetV2,
    Net::DenseNet121,
    Net::Bert,
    Net::Ssd,
    Net::LeNet,
    Net::BertShort,
];

/// How many of them are measured beside each other.
pub(super) const NEIGHBOURS: usize = 9;

/// In which numbers they compute.
pub(super) const PRECISION: &str = "fp16";

/// The file of a model, which is made if it is not there.
pub(super) fn file(folder: &Path, net: Net) -> anyhow::Result<PathBuf> {
    let file = folder.join(format!("{net}.onnx"));
    if !file.exists() {
        fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot be made", folder.display()))?;
        net.build(Precision::Fp16, 1)
            .write(&file)
            .with_context(|| format!("{}: cannot be written", file.display()))?;
    }
    Ok(file)
}

/// A repository with some of the models, each with its objective in milliseconds.
pub(super) fn repository(
    folder: &Path,
    name: &str,
    models: &[(Net, f64)],
) -> anyhow::Result<PathBuf> {
    let repository = folder.join(name);
    // What an earlier run left may be of other models.
    if repository.exists() {
        fs::remove_dir_all(&repository)
            .with_context(|| format!("{}: cannot be removed", repository.display()))?;
    }
    for &(net, slo_ms) in models {
        let version = repository.join(net.name()).join("1");
        fs::create_dir_all(&version)
            .with_context(|| format!("{}: cannot be made", version.display()))?;
        let (from, to) = (file(folder, net)?, version.join("model.onnx"));
        // Where a second name cannot be had, a copy is as good.
        let linked = fs::hard_link(&from, &to).or_else(|_| fs::copy(&from, &to).map(drop));
        linked.with_context(|| format!("{}: cannot be written", to.display()))?;
        let settings = repository.join(net.name()).join("fermata.toml");
        output::write_file(&settings, &format!("slo_ms = {slo_ms}\n"))?;
    }
    Ok(repository)
}
