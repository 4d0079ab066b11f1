//! Operators on images: channels, height, width.
//!
//! A batch normalisation that follows a convolution is not there: what serves has it folded into
//! the convolution's weights and bias, so that a convolution has a bias here where the published
//! network had a normalisation.

use super::{Activation, Element, Graph, Tensor};
use crate::proto::AttributeProto;
use crate::values::Values;

/// A convolution.
#[derive(Clone, Debug)]
pub struct Conv {
    channels: usize,
    kernel: [usize; 2],
    stride: usize,
    pad: [usize; 2],
    groups: usize,
    bias: bool,
    activation: Activation,
    gain: f32,
}

impl Conv {
    /// To so many channels, with a square kernel that is padded to its middle: at stride one, the
    /// image stays as large as it is.
    pub fn new(channels: usize, kernel: usize) -> Self {
        Self::oblong(channels, [kernel, kernel])
    }

    /// The same with a kernel of another height than width.
    pub fn oblong(channels: usize, kernel: [usize; 2]) -> Self {
        Self {
            channels,
            kernel,
            stride: 1,
            pad: kernel.map(|side| side / 2),
            groups: 1,
            bias: true,
            activation: Activation::None,
            gain: 1.0,
        }
    }

    /// Every so many pixels.
    pub fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// Within the image only.
    pub fn unpadded(self) -> Self {
        Self { pad: [0, 0], ..self }
    }

    /// In so many groups of channels that do not see each other.
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Without a bias.
    pub fn without_bias(self) -> Self {
        Self { bias: false, ..self }
    }

    /// With this behind it.
    pub fn then(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// With weights that are larger, or smaller, than what keeps the scale.
    pub fn gain(self, gain: f32) -> Self {
        Self { gain, ..self }
    }
}

/// A pooling.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// The side of the square that is pooled.
    pub kernel: usize,
    /// Every so many pixels.
    pub stride: usize,
    /// So many pixels around the image.
    pub pad: usize,
}

impl Graph {
    /// A convolution, with its activation.
    pub fn conv(&mut self, x: &Tensor, conv: &Conv) -> Tensor {
        let [channels, height, width] = x.image();
        let each = channels / conv.groups;
        assert!(
            each * conv.groups == channels && conv.channels.is_multiple_of(conv.groups),
            "channels fall into groups"
        );
        let [rows, columns] = conv.kernel;
        let summed = each * rows * columns;
        let deviation = conv.gain * conv.activation.gain() / (summed as f32).sqrt();
        let shape = [conv.channels, each, rows, columns];
        let mut inputs = vec![x.name.clone(), self.weight(&shape, Values::deviation(deviation))];
        if conv.bias {
            inputs.push(self.bias(conv.channels));
        }
        let [top, left] = conv.pad;
        let attributes = vec![
            AttributeProto::ints("kernel_shape", axes(&conv.kernel)),
            AttributeProto::ints("strides", axes(&[conv.stride; 2])),
            AttributeProto::ints("pads", axes(&[top, left, top, left])),
            AttributeProto::int("group", conv.groups as i64),
        ];
        let shape = vec![
            conv.channels,
            reach(height, rows, conv.stride, top),
            reach(width, columns, conv.stride, left),
        ];
        self.multiply_adds += shape.iter().product::<usize>() * summed;
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let y = self.node("Conv", &inputs, attributes, x.element, shape);
        self.activate(&y, conv.activation)
    }

    /// What follows an operator at once.
    pub fn activate(&mut self, x: &Tensor, activation: Activation) -> Tensor {
        match activation {
            Activation::None => x.clone(),
            Activation::Relu => self.like("Relu", x, &[], Vec::new()),
            Activation::Relu6 => {
                let (least, most) = (self.constant(0.0), self.constant(6.0));
                self.like("Clip", x, &[&least, &most], Vec::new())
            }
        }
    }

    /// A batch normalisation that cannot be folded, since no convolution precedes it.
    pub fn batch_norm(&mut self, x: &Tensor) -> Tensor {
        let [channels, ..] = x.image();
        let scale = self.weight(&[channels], Values::Uniform { mean: 1.0, bound: 0.1 });
        let bias = self.bias(channels);
        // What it would have counted in training: here the scale is kept by the weights.
        let (mean, variance) =
            (self.constants(vec![0.0; channels]), self.constants(vec![1.0; channels]));
        self.like("BatchNormalization", x, &[&scale, &bias, &mean, &variance], Vec::new())
    }

    /// The largest of each square.
    pub fn max_pool(&mut self, x: &Tensor, pool: Pool) -> Tensor {
        self.pool("MaxPool", x, pool, Vec::new())
    }

    /// The mean of each square, to which what is around the image counts as zeros.
    pub fn average_pool(&mut self, x: &Tensor, pool: Pool) -> Tensor {
        let attributes = vec![AttributeProto::int("count_include_pad", 1)];
        self.pool("AveragePool", x, pool, attributes)
    }

    /// The mean of each channel, as a vector.
    pub fn global_average_pool(&mut self, x: &Tensor) -> Tensor {
        let [channels, ..] = x.image();
        let inputs = [x.name.as_str()];
        let shape = vec![channels, 1, 1];
        let y = self.node("GlobalAveragePool", &inputs, Vec::new(), x.element, shape);
        self.flatten(&y)
    }

    /// Bytes as decoders give them, height by width by channels, to numbers of mean zero and
    /// deviation one.
    ///
    /// The channels go to the front only at the end: where the engine prefers them at the back, it
    /// undoes that.
    pub fn normalised(&mut self, image: &Tensor, mean: &[f32], deviation: &[f32]) -> Tensor {
        assert_eq!(image.element, Element::Uint8, "an image is bytes");
        let x = self.cast(image, self.precision.element());
        let mean = self.constants(mean.iter().map(|mean| mean * 255.0).collect());
        let x = self.like("Sub", &x, &[&mean], Vec::new());
        let scale = self.constants(deviation.iter().map(|each| 1.0 / (each * 255.0)).collect());
        let x = self.like("Mul", &x, &[&scale], Vec::new());
        self.transpose(&x, &[2, 0, 1])
    }

    fn pool(
        &mut self,
        operator: &str,
        x: &Tensor,
        pool: Pool,
        mut attributes: Vec<AttributeProto>,
    ) -> Tensor {
        let [channels, height, width] = x.image();
        let Pool { kernel, stride, pad } = pool;
        attributes.extend([
            AttributeProto::ints("kernel_shape", axes(&[kernel; 2])),
            AttributeProto::ints("strides", axes(&[stride; 2])),
            AttributeProto::ints("pads", axes(&[pad; 4])),
        ]);
        let side = |side: usize| reach(side, kernel, stride, pad);
        let shape = vec![channels, side(height), side(width)];
        self.node(operator, &[x.name.as_str()], attributes, x.element, shape)
    }
}

/// How long a side is behind a kernel.
fn reach(side: usize, kernel: usize, stride: usize, pad: usize) -> usize {
    assert!(side + 2 * pad >= kernel, "a kernel fits into the image");
    (side + 2 * pad - kernel) / stride + 1
}

fn axes(lengths: &[usize]) -> Vec<i64> {
    lengths.iter().map(|&length| length as i64).collect()
}
