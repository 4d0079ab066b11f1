//! ResNets of bottleneck blocks (He et al., 2016), with the stride in the middle of a block, as is
//! usual since.

use super::{classify, image};
use crate::builder::{Activation, Conv, Graph, Pool, Tensor};

/// With so many blocks in each of the four stages.
pub(super) fn build(graph: &mut Graph, blocks: [usize; 4]) {
    let x = image(graph, 224);
    let x = graph.conv(&x, &Conv::new(64, 7).stride(2).then(Activation::Relu));
    let mut x = graph.max_pool(&x, Pool { kernel: 3, stride: 2, pad: 1 });
    // All branches together add as much as there was at first.
    let gain = 1.0 / (blocks.iter().sum::<usize>() as f32).sqrt();
    for (stage, count) in blocks.into_iter().enumerate() {
        for at in 0..count {
            let stride = if stage > 0 && at == 0 { 2 } else { 1 };
            x = bottleneck(graph, &x, 64 << stage, stride, gain);
        }
    }
    classify(graph, &x);
}

fn bottleneck(graph: &mut Graph, x: &Tensor, width: usize, stride: usize, gain: f32) -> Tensor {
    let channels = 4 * width;
    let y = graph.conv(x, &Conv::new(width, 1).then(Activation::Relu));
    let y = graph.conv(&y, &Conv::new(width, 3).stride(stride).then(Activation::Relu));
    let y = graph.conv(&y, &Conv::new(channels, 1).gain(gain));
    let short = match x.shape()[0] == channels {
        true => x.clone(),
        false => graph.conv(x, &Conv::new(channels, 1).stride(stride)),
    };
    let y = graph.add(&y, &short);
    graph.activate(&y, Activation::Relu)
}
