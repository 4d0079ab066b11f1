//! Operators on vectors and rows of vectors: products, sums, attention.
//!
//! They are the standard's operators and nothing else, so that any engine runs them. Gelu stands in
//! its form with Erf, for which ONNX Runtime has one kernel; its kernel for attention it finds in
//! files of older operators only.

use super::{Activation, Element, Graph, Tensor};
use crate::proto::AttributeProto;
use crate::values::Values;

impl Graph {
    /// A layer that sees all of a vector, for vectors alone and in rows; with its activation.
    pub fn linear(&mut self, x: &Tensor, features: usize, activation: Activation) -> Tensor {
        let (&summed, rows) = x.shape.split_last().expect("a vector has an axis");
        let deviation = activation.gain() / (summed as f32).sqrt();
        self.multiply_adds += rows.iter().product::<usize>() * summed * features;
        let mut shape = rows.to_vec();
        shape.push(features);
        let y = if rows.is_empty() {
            let weight = self.weight(&[features, summed], Values::deviation(deviation));
            let bias = self.bias(features);
            let attributes = vec![AttributeProto::int("transB", 1)];
            self.node("Gemm", &[&x.name, &weight, &bias], attributes, x.element, shape)
        } else {
            let weight = self.weight(&[summed, features], Values::deviation(deviation));
            let bias = self.bias(features);
            let y = self.node("MatMul", &[&x.name, &weight], Vec::new(), x.element, shape);
            self.like("Add", &y, &[&bias], Vec::new())
        };
        self.activate(&y, activation)
    }

    /// The product of matrices, which are the last two axes.
    pub fn matmul(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        let [.., rows, summed] = a.shape[..] else { panic!("a matrix has two axes") };
        let [.., depth, columns] = b.shape[..] else { panic!("a matrix has two axes") };
        let many = &a.shape[..a.shape.len() - 2];
        assert!(depth == summed && b.shape.starts_with(many), "matrices that can be multiplied");
        let shape = [many, &[rows, columns]].concat();
        self.multiply_adds += shape.iter().product::<usize>() * summed;
        self.node("MatMul", &[&a.name, &b.name], Vec::new(), a.element, shape)
    }

    /// The sum of two tensors; the second may have one where the first has several.
    pub fn add(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        let fits = |(a, b): (&usize, &usize)| a == b || *b == 1;
        assert!(
            a.shape.len() == b.shape.len() && a.shape.iter().zip(&b.shape).all(fits),
            "tensors that can be added"
        );
        self.like("Add", a, &[&b.name], Vec::new())
    }

    /// Each number over a number.
    pub fn divide(&mut self, x: &Tensor, by: f32) -> Tensor {
        let by = self.constant(by);
        self.like("Div", x, &[&by], Vec::new())
    }

    /// Each number times a number.
    pub fn multiply(&mut self, x: &Tensor, by: f32) -> Tensor {
        let by = self.constant(by);
        self.like("Mul", x, &[&by], Vec::new())
    }

    /// Probabilities along the last axis.
    pub fn softmax(&mut self, x: &Tensor) -> Tensor {
        self.like("Softmax", x, &[], vec![AttributeProto::int("axis", -1)])
    }

    /// The hyperbolic tangent.
    pub fn tanh(&mut self, x: &Tensor) -> Tensor {
        self.like("Tanh", x, &[], Vec::new())
    }

    /// Gelu, exact: half of x times one plus the error function of x over the root of two.
    pub fn gelu(&mut self, x: &Tensor) -> Tensor {
        let scaled = self.divide(x, std::f32::consts::SQRT_2);
        let error = self.like("Erf", &scaled, &[], Vec::new());
        let one = self.constant(1.0);
        let above = self.like("Add", &error, &[&one], Vec::new());
        let product = self.like("Mul", x, &[&above.name], Vec::new());
        self.multiply(&product, 0.5)
    }

    /// Each vector to mean zero and deviation one, and on from there.
    pub fn layer_norm(&mut self, x: &Tensor) -> Tensor {
        let &features = x.shape.last().expect("a vector has an axis");
        let scale = self.weight(&[features], Values::Uniform { mean: 1.0, bound: 0.1 });
        let bias = self.bias(features);
        let attributes =
            vec![AttributeProto::int("axis", -1), AttributeProto::float("epsilon", 1e-5)];
        self.like("LayerNormalization", x, &[&scale, &bias], attributes)
    }

    /// For each number the row of a table.
    pub fn embedding(&mut self, ids: &Tensor, rows: usize, features: usize) -> Tensor {
        assert_eq!(ids.element, Element::Int64, "rows are told by numbers");
        let table = self.weight(&[rows, features], Values::deviation(1.0));
        let shape = [&ids.shape[..], &[features]].concat();
        let element = self.precision.element();
        let attributes = vec![AttributeProto::int("axis", 0)];
        self.node("Gather", &[&table, &ids.name], attributes, element, shape)
    }

    /// Adds to each vector of a sequence the row of a table at its place in it. The table may have
    /// more rows.
    pub fn add_places(&mut self, x: &Tensor, rows: usize) -> Tensor {
        let [length, features] = x.shape[..] else { panic!("a sequence of vectors") };
        assert!(length <= rows, "each place has a row");
        let places = (0..length as i64).collect();
        self.add_rows(x, rows, features, places)
    }

    /// Adds to each vector of a sequence the first row of a table.
    pub fn add_first(&mut self, x: &Tensor, rows: usize) -> Tensor {
        let &features = x.shape.last().expect("a vector has an axis");
        self.add_rows(x, rows, features, vec![0])
    }

    /// Adds rows of a table, the same in each request: the engine takes them out once, when it
    /// reads the file.
    fn add_rows(&mut self, x: &Tensor, rows: usize, features: usize, which: Vec<i64>) -> Tensor {
        let table = self.weight(&[rows, features], Values::deviation(1.0));
        let which = self.integers(which);
        let attributes = vec![AttributeProto::int("axis", 0)];
        let taken = self.node("Gather", &[&table, &which], attributes, x.element, Vec::new());
        self.like("Add", x, &[&taken.name], Vec::new())
    }

    /// What is added to the scores of attention: nothing where the mask is one, and so much less
    /// where it is zero that the place does not count.
    pub fn attention_bias(&mut self, mask: &Tensor) -> Tensor {
        let mask = self.unsqueeze(mask, 0);
        let mask = self.unsqueeze(&mask, 0);
        let mask = self.cast(&mask, self.precision.element());
        let one = self.constant(1.0);
        let absent = self.node("Sub", &[&one, &mask.name], Vec::new(), mask.element, mask.shape);
        // FP16 ends at 65,504.
        self.multiply(&absent, -10_000.0)
    }

    /// Attention of a sequence to itself, with so many heads, up to the layer that joins them.
    pub fn attention(&mut self, x: &Tensor, bias: &Tensor, heads: usize) -> Tensor {
        let [length, features] = x.shape[..] else { panic!("a sequence of vectors") };
        let each = features / heads;
        assert_eq!(each * heads, features, "heads of equal width");
        let mut head = |order: &[usize]| {
            let y = self.linear(x, features, Activation::None);
            let y = self.reshape(&y, &[length, heads, each]);
            self.transpose(&y, order)
        };
        let (query, key, value) = (head(&[1, 0, 2]), head(&[1, 2, 0]), head(&[1, 0, 2]));
        let scores = self.matmul(&query, &key);
        let scores = self.divide(&scores, (each as f32).sqrt());
        let scores = self.add(&scores, bias);
        let weights = self.softmax(&scores);
        let mixed = self.matmul(&weights, &value);
        let mixed = self.transpose(&mixed, &[1, 0, 2]);
        let mixed = self.reshape(&mixed, &[length, features]);
        self.linear(&mixed, features, Activation::None)
    }
}
