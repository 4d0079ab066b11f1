//! MobileNetV2 (Sandler et al., 2018): blocks that widen, look at each channel alone, and narrow
//! again.

use super::{classify, image};
use crate::builder::{Activation, Conv, Graph, Tensor};

/// Of each stage: how much its blocks widen, its channels, its blocks, and the stride of the first.
const STAGES: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];
/// The weights of the end of a block that is added to its start: ten are, and together they add as
/// much as there was.
const BRANCH: f32 = 0.3;

pub(super) fn build(graph: &mut Graph) {
    let x = image(graph, 224);
    let [_, x] = features(graph, &x);
    classify(graph, &x);
}

/// The network without its end: what the first block of stride two that follows the fifth stage
/// widens to, at a sixteenth of the image, and the last channels, at a thirty-second.
pub(super) fn features(graph: &mut Graph, image: &Tensor) -> [Tensor; 2] {
    let mut x = graph.conv(image, &Conv::new(32, 3).stride(2).then(Activation::Relu6));
    let mut sixteenth = None;
    for (stage, (factor, channels, blocks, stride)) in STAGES.into_iter().enumerate() {
        for at in 0..blocks {
            let wide = widen(graph, &x, factor);
            if (stage, at) == (5, 0) {
                sixteenth = Some(wide.clone());
            }
            x = narrow(graph, &x, &wide, channels, if at == 0 { stride } else { 1 });
        }
    }
    let last = graph.conv(&x, &Conv::new(1280, 1).then(Activation::Relu6));
    [sixteenth.expect("there is a sixth stage"), last]
}

/// A convolution of each channel alone.
pub(super) fn depthwise(graph: &mut Graph, x: &Tensor, stride: usize) -> Tensor {
    let channels = x.shape()[0];
    let conv = Conv::new(channels, 3).stride(stride).groups(channels);
    graph.conv(x, &conv.then(Activation::Relu6))
}

fn widen(graph: &mut Graph, x: &Tensor, factor: usize) -> Tensor {
    match factor {
        1 => x.clone(),
        factor => graph.conv(x, &Conv::new(factor * x.shape()[0], 1).then(Activation::Relu6)),
    }
}

fn narrow(graph: &mut Graph, x: &Tensor, wide: &Tensor, channels: usize, stride: usize) -> Tensor {
    let y = depthwise(graph, wide, stride);
    match stride == 1 && x.shape()[0] == channels {
        true => {
            let y = graph.conv(&y, &Conv::new(channels, 1).gain(BRANCH));
            graph.add(&y, x)
        }
        false => graph.conv(&y, &Conv::new(channels, 1)),
    }
}
