//! Inception v3 (Szegedy et al., 2016) on 299 by 299 pixels, without the classifier that helps
//! training.

use super::{classify, image};
use crate::builder::{Activation, Conv, Graph, Pool, Tensor};

/// A smaller image: every second pixel, within it.
const HALF: Pool = Pool { kernel: 3, stride: 2, pad: 0 };

pub(super) fn build(graph: &mut Graph) {
    let x = image(graph, 299);
    let x = chain(graph, &x, [Conv::new(32, 3).stride(2).unpadded()]);
    let x = chain(graph, &x, [Conv::new(32, 3).unpadded(), Conv::new(64, 3)]);
    let x = graph.max_pool(&x, HALF);
    let x = chain(graph, &x, [Conv::new(80, 1), Conv::new(192, 3).unpadded()]);
    let mut x = graph.max_pool(&x, HALF);
    for pooled in [32, 64, 64] {
        x = module_a(graph, &x, pooled);
    }
    x = module_b(graph, &x);
    for width in [128, 160, 160, 192] {
        x = module_c(graph, &x, width);
    }
    x = module_d(graph, &x);
    for _ in 0..2 {
        x = module_e(graph, &x);
    }
    classify(graph, &x);
}

/// Kernels up to five, on 35 by 35.
fn module_a(graph: &mut Graph, x: &Tensor, pooled: usize) -> Tensor {
    let one = chain(graph, x, [Conv::new(64, 1)]);
    let five = chain(graph, x, [Conv::new(48, 1), Conv::new(64, 5)]);
    let twice = chain(graph, x, [Conv::new(64, 1), Conv::new(96, 3), Conv::new(96, 3)]);
    let pool = average(graph, x, pooled);
    graph.concat(&[one, five, twice, pool], 0)
}

/// To 17 by 17.
fn module_b(graph: &mut Graph, x: &Tensor) -> Tensor {
    let three = chain(graph, x, [Conv::new(384, 3).stride(2).unpadded()]);
    let last = Conv::new(96, 3).stride(2).unpadded();
    let twice = chain(graph, x, [Conv::new(64, 1), Conv::new(96, 3), last]);
    let pool = graph.max_pool(x, HALF);
    graph.concat(&[three, twice, pool], 0)
}

/// Kernels of seven, as a row and a column.
fn module_c(graph: &mut Graph, x: &Tensor, width: usize) -> Tensor {
    let (row, column) = ([1, 7], [7, 1]);
    let one = chain(graph, x, [Conv::new(192, 1)]);
    let seven = [Conv::new(width, 1), Conv::oblong(width, row), Conv::oblong(192, column)];
    let seven = chain(graph, x, seven);
    let twice = [
        Conv::new(width, 1),
        Conv::oblong(width, column),
        Conv::oblong(width, row),
        Conv::oblong(width, column),
        Conv::oblong(192, row),
    ];
    let twice = chain(graph, x, twice);
    let pool = average(graph, x, 192);
    graph.concat(&[one, seven, twice, pool], 0)
}

/// To 8 by 8.
fn module_d(graph: &mut Graph, x: &Tensor) -> Tensor {
    let three = chain(graph, x, [Conv::new(192, 1), Conv::new(320, 3).stride(2).unpadded()]);
    let seven = [
        Conv::new(192, 1),
        Conv::oblong(192, [1, 7]),
        Conv::oblong(192, [7, 1]),
        Conv::new(192, 3).stride(2).unpadded(),
    ];
    let seven = chain(graph, x, seven);
    let pool = graph.max_pool(x, HALF);
    graph.concat(&[three, seven, pool], 0)
}

/// Kernels of three that part into a row and a column.
fn module_e(graph: &mut Graph, x: &Tensor) -> Tensor {
    let one = chain(graph, x, [Conv::new(320, 1)]);
    let three = chain(graph, x, [Conv::new(384, 1)]);
    let [row, column] = parted(graph, &three);
    let twice = chain(graph, x, [Conv::new(448, 1), Conv::new(384, 3)]);
    let [second_row, second_column] = parted(graph, &twice);
    let pool = average(graph, x, 192);
    graph.concat(&[one, row, column, second_row, second_column, pool], 0)
}

fn parted(graph: &mut Graph, x: &Tensor) -> [Tensor; 2] {
    [[1, 3], [3, 1]].map(|kernel| chain(graph, x, [Conv::oblong(384, kernel)]))
}

fn average(graph: &mut Graph, x: &Tensor, channels: usize) -> Tensor {
    let x = graph.average_pool(x, Pool { kernel: 3, stride: 1, pad: 1 });
    chain(graph, &x, [Conv::new(channels, 1)])
}

/// Convolutions one after the other, each with ReLU.
fn chain(graph: &mut Graph, x: &Tensor, convs: impl IntoIterator<Item = Conv>) -> Tensor {
    convs.into_iter().fold(x.clone(), |x, conv| graph.conv(&x, &conv.then(Activation::Relu)))
}
