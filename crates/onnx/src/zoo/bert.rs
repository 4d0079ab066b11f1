//! BERT-base (Devlin et al., 2019): twelve layers of an encoder, on sequences of one length.

use crate::builder::{Activation, Element, Graph, Tensor};

const LAYERS: usize = 12;
const FEATURES: usize = 768;
const HEADS: usize = 12;
/// How much wider the layers between two attentions are.
const WIDER: usize = 4;
const VOCABULARY: usize = 30_522;
/// The longest sequence.
const PLACES: usize = 512;
/// First and second sentence: here all is the first.
const SENTENCES: usize = 2;

/// What comes out.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// One vector for the sequence, `pooled`.
    Pooled,
    /// A vector for each token, `last_hidden_state`.
    Tokens,
}

pub(super) fn build(graph: &mut Graph, length: usize, answer: Answer) {
    let ids = graph.input("input_ids", Element::Int64, &[length]);
    let mask = graph.input("attention_mask", Element::Int64, &[length]);
    let bias = graph.attention_bias(&mask);
    let x = graph.embedding(&ids, VOCABULARY, FEATURES);
    let x = graph.add_places(&x, PLACES);
    let x = graph.add_first(&x, SENTENCES);
    let mut x = graph.layer_norm(&x);
    for _ in 0..LAYERS {
        x = layer(graph, &x, &bias);
    }
    match answer {
        Answer::Pooled => {
            let first = graph.pick(&x, 0, 0);
            let pooled = graph.linear(&first, FEATURES, Activation::None);
            let pooled = graph.tanh(&pooled);
            graph.output("pooled", &pooled);
        }
        Answer::Tokens => graph.output("last_hidden_state", &x),
    }
}

fn layer(graph: &mut Graph, x: &Tensor, bias: &Tensor) -> Tensor {
    let y = graph.attention(x, bias, HEADS);
    let x = graph.add(&y, x);
    let x = graph.layer_norm(&x);
    let y = graph.linear(&x, WIDER * FEATURES, Activation::None);
    let y = graph.gelu(&y);
    let y = graph.linear(&y, FEATURES, Activation::None);
    let x = graph.add(&y, &x);
    graph.layer_norm(&x)
}
