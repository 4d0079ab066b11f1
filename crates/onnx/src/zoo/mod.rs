//! Well-known networks with random weights, as they were published: shapes, channels, strides.
//!
//! Those that see images take bytes as decoders give them, `image` UINT8 \[N, height, width, 3\],
//! and normalise them themselves; encoders take `input_ids` and `attention_mask` INT64 \[N,
//! length\]. All answer in FP32. The weights keep the scale of what passes through, so that nothing
//! overflows in FP16.

mod bert;
mod densenet;
mod inception;
mod lenet;
mod mobilenet;
mod resnet;
mod ssd;
mod vgg;

use std::fmt;
use std::str::FromStr;

use crate::Model;
pub use crate::builder::Precision;
use crate::builder::{Activation, Element, Graph, Tensor};

/// The means of the channels in ImageNet, from 0 to 1.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Their deviations.
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];
/// The classes of ImageNet.
const CLASSES: usize = 1000;

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Net {
    /// BERT-base on 128 tokens, whose answer is one vector.
    Bert,
    /// BERT-base on 32 tokens, whose answer is one vector.
    BertShort,
    /// BERT-base on 128 tokens, whose answer is a vector for each.
    BertTokens,
    /// DenseNet-121.
    DenseNet121,
    /// Inception v3 without the classifier that helps training.
    InceptionV3,
    /// LeNet-5 with ReLU.
    LeNet,
    /// MobileNetV2.
    MobileNetV2,
    /// ResNet-152, strides in the middle of a block (v1.5).
    ResNet152,
    /// ResNet-50, the same.
    ResNet50,
    /// A single-shot detector on MobileNetV2, up to the choice among boxes.
    Ssd,
    /// VGG-16.
    Vgg16,
}

impl Net {
    /// All of them, by name.
    pub const ALL: [Self; 11] = [
        Self::Bert,
        Self::BertShort,
        Self::BertTokens,
        Self::DenseNet121,
        Self::InceptionV3,
        Self::LeNet,
        Self::MobileNetV2,
        Self::ResNet152,
        Self::ResNet50,
        Self::Ssd,
        Self::Vgg16,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::BertShort => "bert_short",
            Self::BertTokens => "bert_tokens",
            Self::DenseNet121 => "densenet121",
            Self::InceptionV3 => "inceptionv3",
            Self::LeNet => "lenet",
            Self::MobileNetV2 => "mobilenetv2",
            Self::ResNet152 => "resnet152",
            Self::ResNet50 => "resnet50",
            Self::Ssd => "ssd",
            Self::Vgg16 => "vgg16",
        }
    }

    /// What it is, in one line.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bert => "BERT-base, 128 tokens, pooled",
            Self::BertShort => "BERT-base, 32 tokens, pooled",
            Self::BertTokens => "BERT-base, 128 tokens, a vector for each",
            Self::DenseNet121 => "DenseNet-121",
            Self::InceptionV3 => "Inception v3",
            Self::LeNet => "LeNet-5",
            Self::MobileNetV2 => "MobileNetV2",
            Self::ResNet152 => "ResNet-152",
            Self::ResNet50 => "ResNet-50",
            Self::Ssd => "SSD with MobileNetV2, no choice among boxes",
            Self::Vgg16 => "VGG-16",
        }
    }

    /// The network with the weights of a seed. They are drawn when it is written, so this is cheap.
    pub fn build(self, precision: Precision, seed: u64) -> Model {
        let mut graph = Graph::new(self.name(), precision);
        match self {
            Self::Bert => bert::build(&mut graph, 128, bert::Answer::Pooled),
            Self::BertShort => bert::build(&mut graph, 32, bert::Answer::Pooled),
            Self::BertTokens => bert::build(&mut graph, 128, bert::Answer::Tokens),
            Self::DenseNet121 => densenet::build(&mut graph),
            Self::InceptionV3 => inception::build(&mut graph),
            Self::LeNet => lenet::build(&mut graph),
            Self::MobileNetV2 => mobilenet::build(&mut graph),
            Self::ResNet152 => resnet::build(&mut graph, [3, 8, 36, 3]),
            Self::ResNet50 => resnet::build(&mut graph, [3, 4, 6, 3]),
            Self::Ssd => ssd::build(&mut graph),
            Self::Vgg16 => vgg::build(&mut graph),
        }
        graph.finish(seed)
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|net| net.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name);
            format!("'{}' is none of {}", text.escape_default(), names.join(", "))
        })
    }
}

/// An image in colour, normalised.
fn image(graph: &mut Graph, side: usize) -> Tensor {
    let image = graph.input("image", Element::Uint8, &[side, side, 3]);
    graph.normalised(&image, &MEAN, &DEVIATION)
}

/// The end of a network that tells what an image shows.
fn classify(graph: &mut Graph, x: &Tensor) {
    let x = graph.global_average_pool(x);
    let scores = graph.linear(&x, CLASSES, Activation::None);
    graph.output("scores", &scores);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_is_found_by_its_name() {
        for net in Net::ALL {
            assert_eq!(net.name().parse(), Ok(net));
        }
        let error = "resnet\n50".parse::<Net>().expect_err("there is none");
        assert!(error.starts_with("'resnet\\n50' is none of bert, bert_short, "), "{error}");
    }
}
