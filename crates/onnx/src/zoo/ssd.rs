//! A single-shot detector (Liu et al., 2016) on MobileNetV2 at 300 by 300 pixels, with the light
//! heads of that paper.
//!
//! Its answers are `boxes`, offsets from each anchor, and `scores`, probabilities of 21 classes for
//! each anchor. Which boxes are left when others cover them is for the client to choose.

use super::image;
use super::mobilenet::{depthwise, features};
use crate::builder::{Activation, Conv, Graph, Tensor};

/// The classes of Pascal VOC, and none.
const CLASSES: usize = 21;
/// Anchors at each pixel of the finest scale, and of the others.
const ANCHORS: [usize; 6] = [3, 6, 6, 6, 6, 6];
/// Channels of the scales that are added to the network's two: 5, 3, 2 and 1 pixel wide.
const ADDED: [usize; 4] = [512, 256, 256, 128];

pub(super) fn build(graph: &mut Graph) {
    let x = image(graph, 300);
    let mut scales: Vec<Tensor> = features(graph, &x).into();
    for channels in ADDED {
        let coarsest = scales.last().expect("the network has two");
        let x = graph.conv(coarsest, &Conv::new(channels / 2, 1).then(Activation::Relu6));
        let x = depthwise(graph, &x, 2);
        scales.push(graph.conv(&x, &Conv::new(channels, 1).then(Activation::Relu6)));
    }
    let boxes = heads(graph, &scales, 4);
    graph.output("boxes", &boxes);
    let scores = heads(graph, &scales, CLASSES);
    let scores = graph.softmax(&scores);
    graph.output("scores", &scores);
}

/// So many values for each anchor of each pixel of each scale.
fn heads(graph: &mut Graph, scales: &[Tensor], values: usize) -> Tensor {
    let mut head = |(x, anchors): (&Tensor, usize)| {
        let y = depthwise(graph, x, 1);
        let y = graph.conv(&y, &Conv::new(anchors * values, 1));
        let y = graph.transpose(&y, &[1, 2, 0]);
        let pixels = y.shape()[0] * y.shape()[1];
        graph.reshape(&y, &[pixels * anchors, values])
    };
    let heads: Vec<Tensor> = scales.iter().zip(ANCHORS).map(&mut head).collect();
    graph.concat(&heads, 0)
}
