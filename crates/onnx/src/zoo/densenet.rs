//! DenseNet-121 (Huang et al., 2017). Most of its batch normalisations come before a convolution,
//! and stay.

use std::f32::consts::SQRT_2;

use super::{classify, image};
use crate::builder::{Activation, Conv, Graph, Pool, Tensor};

/// Layers of each block.
const BLOCKS: [usize; 4] = [6, 12, 24, 16];
/// Channels that a layer adds.
const GROWTH: usize = 32;

pub(super) fn build(graph: &mut Graph) {
    let x = image(graph, 224);
    let x = graph.conv(&x, &Conv::new(2 * GROWTH, 7).stride(2).then(Activation::Relu));
    let mut x = graph.max_pool(&x, Pool { kernel: 3, stride: 2, pad: 1 });
    for (block, layers) in BLOCKS.into_iter().enumerate() {
        if block > 0 {
            x = transition(graph, &x);
        }
        for _ in 0..layers {
            x = layer(graph, &x);
        }
    }
    let x = normalised(graph, &x);
    classify(graph, &x);
}

fn layer(graph: &mut Graph, x: &Tensor) -> Tensor {
    let y = normalised(graph, x);
    let y = graph.conv(&y, &Conv::new(4 * GROWTH, 1).then(Activation::Relu));
    // The activation that takes half away stands before the two convolutions.
    let y = graph.conv(&y, &Conv::new(GROWTH, 3).without_bias().gain(SQRT_2));
    graph.concat(&[x.clone(), y], 0)
}

fn transition(graph: &mut Graph, x: &Tensor) -> Tensor {
    let y = normalised(graph, x);
    let channels = x.shape()[0] / 2;
    let y = graph.conv(&y, &Conv::new(channels, 1).without_bias().gain(SQRT_2));
    graph.average_pool(&y, Pool { kernel: 2, stride: 2, pad: 0 })
}

fn normalised(graph: &mut Graph, x: &Tensor) -> Tensor {
    let x = graph.batch_norm(x);
    graph.activate(&x, Activation::Relu)
}
