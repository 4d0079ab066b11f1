//! VGG-16 (Simonyan and Zisserman, 2015), which has no batch normalisation.

use super::{CLASSES, image};
use crate::builder::{Activation, Conv, Graph, Pool};

/// Channels and number of convolutions between two poolings.
const STAGES: [(usize, usize); 5] = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)];

pub(super) fn build(graph: &mut Graph) {
    let mut x = image(graph, 224);
    for (channels, count) in STAGES {
        for _ in 0..count {
            x = graph.conv(&x, &Conv::new(channels, 3).then(Activation::Relu));
        }
        x = graph.max_pool(&x, Pool { kernel: 2, stride: 2, pad: 0 });
    }
    let x = graph.flatten(&x);
    let x = graph.linear(&x, 4096, Activation::Relu);
    let x = graph.linear(&x, 4096, Activation::Relu);
    let scores = graph.linear(&x, CLASSES, Activation::None);
    graph.output("scores", &scores);
}
