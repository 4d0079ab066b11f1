//! Every network against what was published of it, and in ONNX Runtime.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use fermata_engine::{DataType, Engine, Inputs, OnnxRuntime, Outputs, Session, Source, Tensor};
use fermata_onnx::Model;
use fermata_onnx::builder::Element;
use fermata_onnx::proto::{
    self, GraphProto, ModelProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use fermata_onnx::zoo::{Net, Precision};
use prost::Message;

/// Parameters as published, with batch normalisations as they were, and multiply-adds in billions.
fn published(net: Net) -> Option<(usize, f64)> {
    let numbers = match net {
        Net::Bert => (109_482_240, 11.17),
        Net::BertShort => (109_482_240, 2.74),
        // Without the layer that pools.
        Net::BertTokens => (108_891_648, 11.17),
        Net::DenseNet121 => (7_978_856, 2.83),
        Net::InceptionV3 => (23_834_568, 5.71),
        Net::LeNet => (61_706, 0.000_416),
        Net::MobileNetV2 => (3_504_872, 0.300),
        Net::ResNet152 => (60_192_808, 11.51),
        Net::ResNet50 => (25_557_032, 4.09),
        // No such detector was published to the channel.
        Net::Ssd => return None,
        Net::Vgg16 => (138_357_544, 15.47),
    };
    Some(numbers)
}

#[test]
fn parameters_and_multiply_adds_are_as_published() {
    for net in Net::ALL {
        let model = net.build(Precision::Fp16, 1);
        let Some((parameters, billions)) = published(net) else { continue };
        let counted = model.parameters() + folded(net, &model);
        assert_eq!(counted, parameters, "{net}");
        let share = model.multiply_adds() as f64 / (billions * 1e9);
        assert!((0.99..1.01).contains(&share), "{net}: {} multiply-adds", model.multiply_adds());
    }
}

/// What folding batch normalisations into convolutions saved: a number for each channel of a
/// convolution that has a bias now.
fn folded(net: Net, model: &Model) -> usize {
    if matches!(net, Net::Bert | Net::BertShort | Net::BertTokens | Net::LeNet | Net::Vgg16) {
        return 0;
    }
    let graph = decoded(model).graph.unwrap();
    let biased = graph.node.iter().filter(|node| node.op_type == "Conv" && node.input.len() == 3);
    let channels = |name: &str| {
        graph.initializer.iter().find(|weight| weight.name == *name).unwrap().dims[0] as usize
    };
    biased.map(|node| channels(&node.input[2])).sum()
}

#[test]
fn the_detector_has_the_anchors_of_its_kind() {
    let model = Net::Ssd.build(Precision::Fp16, 1);
    let shapes: Vec<&[usize]> = model.outputs().iter().map(|spec| &*spec.shape).collect();
    assert_eq!(shapes, [[1917, 4], [1917, 21]]);
}

#[test]
fn equal_seeds_give_equal_files_of_the_length_foretold() {
    let bytes = |precision, seed| {
        let model = Net::LeNet.build(precision, seed);
        let mut bytes = Vec::new();
        model.encode(&mut bytes).unwrap();
        assert_eq!(bytes.len(), model.file_bytes());
        bytes
    };
    for precision in [Precision::Fp16, Precision::Fp32] {
        assert_eq!(bytes(precision, 7), bytes(precision, 7));
        assert_ne!(bytes(precision, 7), bytes(precision, 8));
    }
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let model = Net::LeNet.build(Precision::Fp32, 1);
    model.write(&folder.path().join("net.onnx")).unwrap();
    assert!(model.write(&folder.path().join("missing/net.onnx")).is_err());
    let taken = folder.path().join("taken.onnx");
    std::fs::create_dir(&taken).unwrap();
    assert!(model.write(&taken).is_err());
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["net.onnx", "taken.onnx"]);
}

#[test]
fn every_network_runs_and_answers_each_row_alike() {
    for net in Net::ALL {
        runs(net, Precision::Fp32);
    }
}

#[test]
fn networks_in_half_precision_run_and_answer_each_row_alike() {
    for net in [Net::LeNet, Net::MobileNetV2, Net::Ssd, Net::ResNet50, Net::BertShort] {
        runs(net, Precision::Fp16);
    }
}

/// Runs batches of one and of two, and looks at what comes out.
fn runs(net: Net, precision: Precision) {
    let model = net.build(precision, 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.onnx");
    model.write(&file).unwrap();
    let mut session = session(&file);
    let [first, second] = [1, 2].map(|seed| inputs(&model, seed));
    let alone = session.run(std::slice::from_ref(&first)).unwrap();
    let equal = session.run(&[first.clone(), first]).unwrap();
    let other = session.run(&[second]).unwrap();
    let what = format!("{net} in {precision:?}");
    // Sums of halves are rounded the more, the deeper a network is.
    let tolerance = if precision == Precision::Fp16 { 0.01 } else { 1e-3 };
    for (at, spec) in model.outputs().iter().enumerate() {
        let expected: Vec<i64> =
            [1].into_iter().chain(spec.shape.iter().map(|&axis| axis as i64)).collect();
        assert_eq!((spec.element, alone[0][at].shape.clone()), (Element::Fp32, expected), "{what}");
        let values = |outputs: &Outputs| as_floats(&outputs[at]);
        assert!(values(&alone[0]).iter().all(|value| value.is_finite()), "{what}");
        for row in &equal {
            let apart = distance(&values(&alone[0]), &values(row));
            assert!(apart < tolerance, "{what}: rows differ by {apart}");
        }
        let apart = distance(&values(&alone[0]), &values(&other[0]));
        assert!(apart > 2.0 * tolerance, "{what}: the input hardly matters: {apart}");
    }
}

#[test]
fn what_the_mask_hides_does_not_count() {
    let model = Net::BertShort.build(Precision::Fp32, 1);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.onnx");
    model.write(&file).unwrap();
    let mut session = session(&file);
    let integers = |values: Vec<i64>| Tensor {
        datatype: DataType::Int64,
        shape: vec![1, 32],
        data: values.into_iter().flat_map(i64::to_le_bytes).collect(),
    };
    // Twenty tokens count; one that differs stands at the given place.
    let mut ask = |place: usize| {
        let ids = (0..32).map(|at| if at == place { 9 } else { 100 + at as i64 }).collect();
        let mask = (0..32).map(|at| i64::from(at < 20)).collect();
        as_floats(&session.run(&[vec![integers(ids), integers(mask)]]).unwrap()[0][0])
    };
    let plain = ask(32);
    assert!(distance(&plain, &ask(25)) < 1e-5);
    assert!(distance(&plain, &ask(10)) > 1e-3);
}

#[test]
fn nothing_on_the_way_comes_near_the_end_of_half_precision() {
    let light = [
        Net::BertShort,
        Net::DenseNet121,
        Net::InceptionV3,
        Net::LeNet,
        Net::MobileNetV2,
        Net::ResNet152,
        Net::Ssd,
    ];
    for net in light {
        let model = net.build(Precision::Fp32, 3);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.onnx");
        std::fs::write(&file, opened(decoded(&model)).encode_to_vec()).unwrap();
        let outputs = session(&file).run(&[inputs(&model, 1)]).unwrap();
        let largest =
            |tensor: &Tensor| as_floats(tensor).into_iter().map(f32::abs).fold(0.0, f32::max);
        let outputs = &outputs[0];
        assert!(outputs.len() > model.outputs().len(), "{net}");
        for tensor in outputs {
            let largest = largest(tensor);
            assert!((0.01..100.0).contains(&largest), "{net}: {largest} in {:?}", tensor.shape);
        }
    }
}

/// The model with everything that convolutions, sums and products compute among its outputs.
fn opened(mut model: ModelProto) -> ModelProto {
    let graph: &mut GraphProto = model.graph.as_mut().unwrap();
    let known: Vec<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    let computed = ["Conv", "Add", "Gemm", "MatMul", "LayerNormalization", "BatchNormalization"];
    let names = graph
        .node
        .iter()
        .filter(|node| computed.contains(&node.op_type.as_str()))
        .flat_map(|node| &node.output)
        .filter(|name| !known.contains(name));
    let tensor = TensorTypeProto { elem_type: proto::DataType::Float.into(), shape: None };
    let kind = TypeProto { tensor_type: Some(tensor) };
    let outputs: Vec<ValueInfoProto> = names
        .map(|name| ValueInfoProto { name: name.clone(), r#type: Some(kind.clone()) })
        .collect();
    graph.output.extend(outputs);
    model
}

/// The model as it is read back.
fn decoded(model: &Model) -> ModelProto {
    let mut bytes = Vec::new();
    model.encode(&mut bytes).unwrap();
    ModelProto::decode(&*bytes).unwrap()
}

fn session(file: &Path) -> Box<dyn Session> {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.fermata/lib");
    let engine = OnnxRuntime::new([library]).unwrap_or_else(|error| panic!("{error}"));
    let model = engine.load(&Source { file: file.to_owned(), threads: 2, memory: None }).unwrap();
    model.session(model.signature()).unwrap()
}

/// Something to ask.
fn inputs(model: &Model, seed: u64) -> Inputs {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let tensor = |spec: &fermata_onnx::TensorSpec| {
        let elements: usize = spec.shape.iter().product();
        let shape = [1].into_iter().chain(spec.shape.iter().map(|&axis| axis as i64)).collect();
        let (datatype, data): (_, Vec<u8>) = match (spec.element, spec.name.as_str()) {
            (Element::Uint8, _) => (DataType::Uint8, (0..elements).map(|_| next() as u8).collect()),
            (Element::Int64, "attention_mask") => {
                (DataType::Int64, 1i64.to_le_bytes().repeat(elements))
            }
            (Element::Int64, _) => {
                let ids = (0..elements).map(|_| (next() % 30_522) as i64);
                (DataType::Int64, ids.flat_map(i64::to_le_bytes).collect())
            }
            (element, name) => panic!("{name}: {element}"),
        };
        Tensor { datatype, shape, data: data.into() }
    };
    model.inputs().iter().map(tensor).collect()
}

fn as_floats(tensor: &Tensor) -> Vec<f32> {
    assert_eq!(tensor.datatype, DataType::Fp32);
    let (values, rest) = tensor.data.as_chunks();
    assert!(rest.is_empty());
    values.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

/// How far apart answers are, against how large they are.
fn distance(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let square =
        |values: &mut dyn Iterator<Item = f32>| values.map(|value| value * value).sum::<f32>();
    let apart = square(&mut one.iter().zip(other).map(|(a, b)| a - b));
    (apart / square(&mut one.iter().copied())).sqrt()
}
