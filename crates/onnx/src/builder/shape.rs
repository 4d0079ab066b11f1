//! Operators that compute nothing: other axes, other elements, several tensors as one.

use super::{Element, Graph, Tensor};
use crate::proto::AttributeProto;
use crate::values::Values;

impl Graph {
    /// The same elements along other axes.
    pub fn reshape(&mut self, x: &Tensor, shape: &[usize]) -> Tensor {
        let elements = |shape: &[usize]| shape.iter().product::<usize>();
        assert_eq!(elements(&x.shape), elements(shape), "all elements stay");
        // Zero takes over the axis that was there: always for the batch, and as long as the axes
        // stay the same.
        let same = x.shape.iter().zip(shape).take_while(|(old, new)| old == new).count();
        let kept = std::iter::repeat_n(0, 1 + same);
        let target = kept.chain(shape[same..].iter().map(|&axis| axis as i64)).collect();
        let target = self.integers(target);
        self.node("Reshape", &[&x.name, &target], Vec::new(), x.element, shape.to_vec())
    }

    /// All elements along one axis.
    pub fn flatten(&mut self, x: &Tensor) -> Tensor {
        let attributes = vec![AttributeProto::int("axis", 1)];
        let shape = vec![x.shape.iter().product()];
        self.node("Flatten", &[&x.name], attributes, x.element, shape)
    }

    /// The axes in another order; the batch stays the first, and is not counted.
    pub fn transpose(&mut self, x: &Tensor, order: &[usize]) -> Tensor {
        assert_eq!(order.len(), x.shape.len(), "an order of all axes");
        let permutation: Vec<i64> =
            std::iter::once(0).chain(order.iter().map(|&axis| 1 + axis as i64)).collect();
        let attributes = vec![AttributeProto::ints("perm", permutation)];
        let shape = order.iter().map(|&axis| x.shape[axis]).collect();
        self.node("Transpose", &[&x.name], attributes, x.element, shape)
    }

    /// One more axis, of length one, before the given one.
    pub fn unsqueeze(&mut self, x: &Tensor, axis: usize) -> Tensor {
        let place = self.integers(vec![1 + axis as i64]);
        let mut shape = x.shape.clone();
        shape.insert(axis, 1);
        self.node("Unsqueeze", &[&x.name, &place], Vec::new(), x.element, shape)
    }

    /// One of the places along an axis, which is gone then.
    pub fn pick(&mut self, x: &Tensor, axis: usize, place: i64) -> Tensor {
        let values = Values::Integers(vec![place]);
        let place = self.initializer("integer", Element::Int64, &[], values);
        let attributes = vec![AttributeProto::int("axis", 1 + axis as i64)];
        let mut shape = x.shape.clone();
        shape.remove(axis);
        self.node("Gather", &[&x.name, &place], attributes, x.element, shape)
    }

    /// Tensors one behind the other along an axis.
    pub fn concat(&mut self, tensors: &[Tensor], axis: usize) -> Tensor {
        let mut shape = tensors[0].shape.clone();
        shape[axis] = tensors.iter().map(|tensor| tensor.shape[axis]).sum();
        let others = |tensor: &Tensor| {
            let mut others = tensor.shape.clone();
            others.remove(axis);
            (tensor.element, others)
        };
        assert!(
            tensors.iter().all(|tensor| others(tensor) == others(&tensors[0])),
            "they differ along the axis only"
        );
        let names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let attributes = vec![AttributeProto::int("axis", 1 + axis as i64)];
        self.node("Concat", &names, attributes, tensors[0].element, shape)
    }

    /// The same numbers as other elements; nothing, where they are these already.
    pub fn cast(&mut self, x: &Tensor, element: Element) -> Tensor {
        if x.element == element {
            return x.clone();
        }
        let attributes = vec![AttributeProto::int("to", i64::from(i32::from(element.data_type())))];
        self.node("Cast", &[&x.name], attributes, element, x.shape.clone())
    }
}
