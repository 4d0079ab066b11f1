//! LeNet-5 (LeCun et al., 1998) on 28 by 28 pixels in grey, with ReLU and the largest of four in
//! place of its own functions.

use crate::builder::{Activation, Conv, Element, Graph, Pool};

/// The mean and the deviation of MNIST's digits, from 0 to 1.
const MEAN: f32 = 0.1307;
const DEVIATION: f32 = 0.3081;

pub(super) fn build(graph: &mut Graph) {
    let image = graph.input("image", Element::Uint8, &[28, 28, 1]);
    let x = graph.normalised(&image, &[MEAN], &[DEVIATION]);
    let half = Pool { kernel: 2, stride: 2, pad: 0 };
    let x = graph.conv(&x, &Conv::new(6, 5).then(Activation::Relu));
    let x = graph.max_pool(&x, half);
    let x = graph.conv(&x, &Conv::new(16, 5).unpadded().then(Activation::Relu));
    let x = graph.max_pool(&x, half);
    let x = graph.flatten(&x);
    let x = graph.linear(&x, 120, Activation::Relu);
    let x = graph.linear(&x, 84, Activation::Relu);
    let scores = graph.linear(&x, 10, Activation::None);
    graph.output("scores", &scores);
}
