//! The contents of requests, drawn or read from files, before they are written in a protocol.

use std::fs;

use bytes::{BufMut, Bytes, BytesMut};
use fermata_engine::{DataType, Tensor, TensorSpec};
use fermata_files::InputError;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::metadata::Tensors;
use super::plan::{InputPlan, ModelPlan};

/// Different contents, so that a cache of answers would show.
const VARIANTS: usize = 8;
/// Less for large inputs.
const VARIANT_BYTES: usize = 8 << 20;
const REQUEST_MAX: usize = 1 << 30;

/// A named tensor to send.
#[derive(Clone, Debug)]
pub(super) struct Input<'a> {
    pub(super) name: &'a str,
    pub(super) tensor: Tensor,
}

/// The requests of one model, before they are written in a protocol.
#[derive(Clone, Debug)]
pub(super) struct Drawn<'a> {
    pub(super) variants: Vec<Vec<Input<'a>>>,
    /// What it gives.
    pub(super) outputs: &'a [TensorSpec],
    /// Inputs to a request.
    pub(super) batch: i64,
}

/// Draws the requests of models with these tensors.
pub(super) fn draw<'a>(
    models: &'a [(ModelPlan, Tensors)],
    plan: &InputPlan,
    seed: u64,
) -> Result<Vec<Drawn<'a>>, InputError> {
    check_names(models, plan)?;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut drawn = Vec::new();
    for (_, Tensors { inputs: specs, outputs }) in models {
        let mut variants = vec![inputs(specs, plan, &mut random)?];
        let bytes: usize = variants[0].iter().map(|input| input.tensor.data.len()).sum();
        while variants.len() < VARIANTS && variants.len() * bytes < VARIANT_BYTES {
            variants.push(inputs(specs, plan, &mut random)?);
        }
        drawn.push(Drawn { variants, outputs, batch: plan.batch });
    }
    Ok(drawn)
}

fn check_names(models: &[(ModelPlan, Tensors)], plan: &InputPlan) -> Result<(), InputError> {
    let inputs = models.iter().flat_map(|(_, tensors)| &tensors.inputs);
    let known: Vec<&str> = inputs.map(|spec| spec.name.as_str()).collect();
    let shapes = plan.shapes.iter().map(|(name, _)| ("--shape", name));
    let files = plan.files.iter().map(|(name, _)| ("--input", name));
    match shapes.chain(files).find(|(_, name)| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some((argument, name)) => {
            let reason = format!("there is no input '{name}': there is {}", known.join(", "));
            Err(InputError::Argument { name: argument, reason })
        }
    }
}

fn inputs<'a>(
    specs: &'a [TensorSpec],
    plan: &InputPlan,
    random: &mut Pcg64Mcg,
) -> Result<Vec<Input<'a>>, InputError> {
    specs
        .iter()
        .map(|spec| Ok(Input { name: &spec.name, tensor: tensor(spec, plan, random)? }))
        .collect()
}

fn tensor(
    spec: &TensorSpec,
    plan: &InputPlan,
    random: &mut Pcg64Mcg,
) -> Result<Tensor, InputError> {
    let TensorSpec { name, datatype, .. } = spec;
    let shape = shape_of(spec, plan)?;
    let size = datatype.size().unwrap_or(12);
    let elements =
        Tensor::elements(&shape).filter(|count| count.saturating_mul(size) < REQUEST_MAX);
    let Some(elements) = elements else {
        let reason = format!("input '{name}' of shape {shape:?} is larger than 1 GiB");
        return Err(InputError::Argument { name: "--shape", reason });
    };
    let file = plan.files.iter().find(|(input, _)| input == name);
    let data = match file {
        Some((_, file)) => {
            let data =
                fs::read(file).map_err(|source| InputError::Read { file: file.clone(), source })?;
            if datatype.size().is_some_and(|size| size * elements != data.len()) {
                let expected = size * elements;
                let reason = format!(
                    "{}: has {} bytes, and '{name}' of shape {shape:?} and type {datatype} has \
                     {expected}",
                    file.display(),
                    data.len()
                );
                return Err(InputError::Argument { name: "--input", reason });
            }
            data.into()
        }
        None => fill(*datatype, elements, (!plan.zeros).then_some(random)),
    };
    Ok(Tensor { datatype: *datatype, shape, data })
}

/// Free axes are as asked for, the first of them the batch, others 1.
fn shape_of(spec: &TensorSpec, plan: &InputPlan) -> Result<Vec<i64>, InputError> {
    let batched = spec.shape.first() == Some(&-1);
    let mut shape = spec.shape.clone();
    if let Some((_, asked)) = plan.shapes.iter().find(|(name, _)| *name == spec.name) {
        shape.clone_from(asked);
        if batched && shape.len() + 1 == spec.shape.len() {
            shape.insert(0, plan.batch);
        }
        let fits = |(asked, axis): (&i64, &i64)| *axis < 0 || asked == axis;
        if shape.len() != spec.shape.len() || !shape.iter().zip(&spec.shape).all(fits) {
            let reason =
                format!("{asked:?} does not fit input '{}', which is {:?}", spec.name, spec.shape);
            return Err(InputError::Argument { name: "--shape", reason });
        }
        return Ok(shape);
    }
    for (at, axis) in shape.iter_mut().enumerate().filter(|(_, axis)| **axis < 0) {
        *axis = if at == 0 { plan.batch } else { 1 };
    }
    Ok(shape)
}

/// Elements that most models bear: floats from 0 to 1, integers below 100, words of eight letters.
pub fn fill(datatype: DataType, elements: usize, random: Option<&mut Pcg64Mcg>) -> Bytes {
    let mut data = BytesMut::with_capacity(elements * datatype.size().unwrap_or(12));
    let Some(random) = random else {
        let size = datatype.size().unwrap_or(4); // An empty string is its length.
        data.put_bytes(0, elements * size);
        return data.freeze();
    };
    for _ in 0..elements {
        match datatype {
            DataType::Bool => data.put_u8(random.random_range(0..2)),
            DataType::Uint8 => data.put_u8(random.random()),
            DataType::Int8 => data.put_i8(random.random_range(0..100)),
            DataType::Uint16 | DataType::Int16 => data.put_u16_le(random.random_range(0..100)),
            DataType::Uint32 | DataType::Int32 => data.put_u32_le(random.random_range(0..100)),
            DataType::Uint64 | DataType::Int64 => data.put_u64_le(random.random_range(0..100)),
            // Halves from 0.5 to 1: their exponent stays the same.
            DataType::Fp16 => data.put_u16_le(0x3800 | random.random_range(0..0x400)),
            DataType::Bf16 => data.put_u16_le((random.random::<f32>().to_bits() >> 16) as u16),
            DataType::Fp32 => data.put_f32_le(random.random()),
            DataType::Fp64 => data.put_f64_le(random.random()),
            DataType::Bytes => {
                data.put_u32_le(8);
                (0..8).for_each(|_| data.put_u8(random.random_range(b'a'..=b'z')));
            }
        }
    }
    data.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(shape: &[i64]) -> TensorSpec {
        TensorSpec { name: "x".to_owned(), datatype: DataType::Fp32, shape: shape.to_vec() }
    }

    fn plan(shape: &[i64]) -> InputPlan {
        let shapes =
            if shape.is_empty() { Vec::new() } else { vec![("x".to_owned(), shape.to_vec())] };
        InputPlan { batch: 2, shapes, ..InputPlan::default() }
    }

    #[test]
    fn free_axes_are_filled() {
        for (has, asked, is) in [
            (&[-1, 3, -1][..], &[][..], &[2, 3, 1][..]),
            (&[-1, 3, -1], &[4, 3, 7], &[4, 3, 7]),
            (&[-1, 3, -1], &[3, 7], &[2, 3, 7]),
            (&[5], &[], &[5]),
            (&[], &[], &[]),
        ] {
            assert_eq!(shape_of(&spec(has), &plan(asked)).unwrap(), is);
        }
        for asked in [&[7][..], &[1, 4, 7], &[1, 1, 3, 7]] {
            assert!(shape_of(&spec(&[-1, 3, -1]), &plan(asked)).is_err(), "{asked:?}");
        }
        assert!(
            tensor(&spec(&[-1, 1 << 40]), &plan(&[]), &mut Pcg64Mcg::seed_from_u64(1)).is_err()
        );
    }

    #[test]
    fn every_datatype_has_the_size_it_says() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for datatype in DataType::ALL {
            let size = datatype.size();
            assert_eq!(
                fill(datatype, 5, Some(&mut random)).len(),
                5 * size.unwrap_or(12),
                "{datatype}"
            );
            assert_eq!(fill(datatype, 5, None).len(), 5 * size.unwrap_or(4), "{datatype}");
        }
        let half = fill(DataType::Bf16, 100, Some(&mut random));
        assert!(half.chunks(2).all(|bits| bits[1] < 0x40), "below two");
    }
}
