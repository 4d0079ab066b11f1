//! Tests of ONNX Runtime on small models, each made to show one thing.

mod common;

use bytes::Bytes;
use common::{
    as_floats, fetched, floats, integers, load, one_by_one, session, small, strings, tensor,
};
use fermata_engine::{DataType, EngineError, Inputs, Signature, Tensor, TensorSpec};

#[test]
fn a_batch_is_gathered_and_shared_out() {
    let mut session = session(small("add.onnx"));
    let batch: Vec<Inputs> = (0..5)
        .map(|i| vec![integers(&[1, 2], &[i, 10 * i]), integers(&[1, 2], &[100, 200])])
        .collect();
    let outputs = session.run(&batch).unwrap();
    for (i, item) in (0..).zip(&outputs) {
        assert_eq!(item[0], integers(&[1, 2], &[i + 100, 10 * i + 200]));
        assert_eq!(item[1], integers(&[1, 2], &[i - 100, 10 * i - 200]));
    }
    assert_eq!(outputs, one_by_one(&mut *session, &batch));
}

#[test]
fn outputs_of_a_batch_lie_side_by_side_and_outlive_the_session() {
    let mut session = session(small("identity.onnx"));
    let batch: Vec<Inputs> = (0..3).map(|i| vec![floats(&[1, 16], [i as f32; 16])]).collect();
    let outputs = session.run(&batch).unwrap();
    let starts: Vec<usize> = outputs.iter().map(|item| item[0].data.as_ptr().addr()).collect();
    assert_eq!([starts[1] - starts[0], starts[2] - starts[1]], [64, 64], "they were copied");
    // Neither another run nor the end of the session may touch the outputs.
    let other = vec![vec![floats(&[1, 16], [9.0; 16])]; 3];
    session.run(&other).unwrap();
    drop(session);
    for (item, inputs) in outputs.iter().zip(&batch) {
        assert_eq!(item, inputs);
    }
}

#[test]
fn another_order_and_fewer_outputs() {
    let model = load(small("add.onnx")).unwrap();
    let mut signature = model.signature().clone();
    assert_eq!(signature.max_batch, 128);
    signature.max_batch = 2;
    signature.inputs.swap(0, 1);
    signature.outputs.remove(0);
    let mut session = model.session(&signature).unwrap();
    let item = vec![integers(&[1, 2], &[1, 2]), integers(&[1, 2], &[5, 5])];
    // A batch that is larger than the largest runs in parts.
    for outputs in session.run(&vec![item; 5]).unwrap() {
        assert_eq!(outputs, [integers(&[1, 2], &[4, 3])]);
    }
}

#[test]
fn items_of_other_shapes_run_apart() {
    let mut session = session(small("dynamic.onnx"));
    let lengths = [2, 3, 2, 0, 3];
    let batch: Vec<Inputs> = (0..)
        .zip(lengths)
        .map(|(i, length)| vec![floats(&[1, length], (0..length).map(|at| (i * 10 + at) as f32))])
        .collect();
    assert_eq!(session.run(&batch).unwrap(), batch);
}

#[test]
fn data_that_is_not_aligned_is_copied() {
    let mut session = session(small("identity.onnx"));
    let aligned = floats(&[1, 16], (0..16).map(|i| i as f32));
    for shift in 0..4 {
        let body = Bytes::from([&[0; 8][..shift], &aligned.data].concat());
        let input = tensor(DataType::Fp32, &[1, 16], body.slice(shift..));
        let outputs = session.run(&[vec![input]]).unwrap();
        assert_eq!(outputs, [[aligned.clone()]]);
    }
}

#[test]
fn a_fixed_batch_of_one() {
    let model = load(small("fixed.onnx")).unwrap();
    let spec = |name: &str, shape: &[i64]| TensorSpec {
        name: name.to_owned(),
        datatype: DataType::Fp32,
        shape: shape.to_vec(),
    };
    let all = vec![spec("x", &[1, 3, 2])];
    assert_eq!((model.signature().max_batch, &model.signature().inputs), (0, &all));

    let input = floats(&[1, 3, 2], (0..6).map(|i| i as f32));
    let one = Signature {
        max_batch: 1,
        inputs: vec![spec("x", &[3, 2])],
        outputs: vec![spec("y", &[3, 2])],
        length: None,
    };
    for signature in [model.signature(), &one] {
        let mut session = model.session(signature).unwrap();
        assert_eq!(session.run(&[vec![input.clone()]]).unwrap(), [[input.clone()]]);
        assert_eq!(session.run(&vec![vec![input.clone()]; 2]).unwrap().len(), 2);
    }
    let Err(error) = model.session(&Signature { max_batch: 2, ..one }) else {
        panic!("the file has a batch of one");
    };
    assert!(error.to_string().ends_with(
        "fixed.onnx: input 'x' is [1, 3, 2] in the model, [3, 2] with batches of 2 as configured"
    ));
}

#[test]
fn strings_of_any_bytes_pass() {
    let mut session = session(small("identity_bytes.onnx"));
    let batch = [
        vec![strings(&[1, 2], &[b"hello", b""])],
        vec![strings(&[1, 2], &["\u{65e5}\u{672c}".as_bytes(), b"zero \0 inside"])],
        vec![strings(&[1, 2], &[b"\xff\xfe not UTF-8", &[0x80; 300]])],
    ];
    assert_eq!(session.run(&batch).unwrap(), batch);
    assert_eq!(one_by_one(&mut *session, &batch), batch);
}

#[test]
fn halves_and_truth_values_are_raw_bytes() {
    for (name, datatype, length) in [
        ("identity_fp16.onnx", DataType::Fp16, 4),
        ("identity_bf16.onnx", DataType::Bf16, 4),
        ("identity_bool.onnx", DataType::Bool, 3),
    ] {
        let mut session = session(small(name));
        let size = datatype.size().unwrap();
        let item = |low: u8| {
            let data: Vec<u8> = (0..length * size).map(|i| (i as u8 + low) % 2).collect();
            vec![tensor(datatype, &[1, length as i64], data)]
        };
        let batch = [item(0), item(1), item(0)];
        assert_eq!(session.run(&batch).unwrap(), batch, "{name}");
    }
}

#[test]
fn an_output_that_is_an_input_does_not_share_its_memory() {
    let mut session = session(small("passthrough.onnx"));
    let batch: Vec<Inputs> = (0..2).map(|i| vec![floats(&[1, 4], [i as f32; 4])]).collect();
    let outputs = session.run(&batch).unwrap();
    session.run(&vec![vec![floats(&[1, 4], [9.0; 4])]; 2]).unwrap();
    assert_eq!(outputs, batch);
}

#[test]
fn an_output_without_the_batch_is_named() {
    let mut session = session(small("doubled.onnx"));
    let error = session.run(&vec![vec![floats(&[1, 4], [1.0; 4])]; 3]).unwrap_err();
    assert_eq!(error.to_string(), "output 'y': its shape is [6, 4] for a batch of 3");
}

#[test]
fn a_session_survives_a_run_that_fails() {
    let mut session = session(small("gather.onnx"));
    let item = |index| vec![integers(&[1, 1], &[index])];
    let error = session.run(&[item(0), item(7)]).unwrap_err();
    assert!(matches!(error, EngineError::Run(_)) && !error.to_string().contains('\n'), "{error}");
    let outputs = session.run(&[item(2), item(0)]).unwrap();
    assert_eq!([as_floats(&outputs[0][0]), as_floats(&outputs[1][0])], [[30.0], [10.0]]);
}

#[test]
fn wrong_items_are_refused_before_the_library_sees_them() {
    let mut numbers = session(small("identity.onnx"));
    let mut refuse = |tensors: Inputs| numbers.run(&[tensors]).unwrap_err().to_string();
    assert_eq!(refuse(vec![]), "0 inputs where the model takes 1");
    assert_eq!(
        refuse(vec![Tensor::zeros(DataType::Int32, vec![1, 16]).unwrap()]),
        "input 'x': INT32 [1, 16] where the model takes FP32 [16] behind a batch of 1"
    );
    refuse(vec![Tensor::zeros(DataType::Fp32, vec![2, 16]).unwrap()]);
    refuse(vec![Tensor::zeros(DataType::Fp32, vec![1, 17]).unwrap()]);
    refuse(vec![Tensor::zeros(DataType::Fp32, vec![]).unwrap()]);
    assert_eq!(
        refuse(vec![tensor(DataType::Fp32, &[1, 16], vec![0; 63])]),
        "input 'x': 63 bytes where FP32 [1, 16] takes 64"
    );
    let mut truth = session(small("identity_bool.onnx"));
    let error = truth.run(&[vec![tensor(DataType::Bool, &[1, 3], vec![0, 1, 2])]]).unwrap_err();
    assert_eq!(error.to_string(), "input 'x': a BOOL is neither 0 nor 1");
    let mut words = session(small("identity_bytes.onnx"));
    words.run(&[vec![tensor(DataType::Bytes, &[1, 2], vec![9; 9])]]).unwrap_err();
    assert!(words.run(&[]).unwrap().is_empty());
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let refuse = |file| match load(file) {
        Err(error @ EngineError::Load { .. }) => error.to_string(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it was read"),
    };
    let folder = std::env::temp_dir().join(format!("fermata-engine-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let whole = std::fs::read(small("add.onnx")).unwrap();
    for (name, bytes) in
        [("empty.onnx", &b""[..]), ("text.onnx", b"hello"), ("half.onnx", &whole[..90])]
    {
        std::fs::write(folder.join(name), bytes).unwrap();
        let message = refuse(folder.join(name));
        assert!(message.contains(name) && !message.contains('\n'), "{message}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let message = refuse(small("missing.onnx"));
    assert!(message.ends_with("missing.onnx: No such file or directory (os error 2)"), "{message}");
    let message = refuse(small("identity_fp8.onnx"));
    assert!(message.contains("input 'x': elements of"), "{message}");
    let message = refuse(small("sequence.onnx"));
    assert!(message.contains("output 'y': Sequence<"), "{message}");
}

#[test]
fn sessions_run_at_the_same_time_and_outputs_die_elsewhere() {
    let model = load(small("identity.onnx")).unwrap();
    let (outputs, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for value in [1.0, 2.0, 3.0] {
            let mut session = model.session(model.signature()).unwrap();
            let outputs = outputs.clone();
            scope.spawn(move || {
                let batch = vec![vec![floats(&[1, 16], [value; 16])]; 4];
                for _ in 0..500 {
                    outputs.send((value, session.run(&batch).unwrap())).unwrap();
                }
            });
        }
        drop(outputs);
        for (value, outputs) in received {
            assert!(outputs.iter().all(|item| as_floats(&item[0]) == [value; 16]));
        }
    });
}

/// A generator that is good enough to fill tensors.
fn noise(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), |&x| {
        let x = x ^ (x << 13);
        let x = x ^ (x >> 7);
        Some(x ^ (x << 17))
    })
}

#[test]
fn magika_gives_the_same_alone_and_in_a_batch() {
    let mut session = session(fetched("magika.onnx"));
    let item = |seed| {
        let tokens = noise(seed).take(2048).flat_map(|x| ((x >> 32) as i32 & 255).to_le_bytes());
        vec![tensor(DataType::Int32, &[1, 2048], tokens.collect::<Vec<u8>>())]
    };
    let batch: Vec<Inputs> = (1..=8).map(item).collect();
    let together = session.run(&batch).unwrap();
    let alone = one_by_one(&mut *session, &batch);
    for (one, other) in together.iter().zip(&alone) {
        let (one, other) = (as_floats(&one[0]), as_floats(&other[0]));
        assert_eq!(one.len(), 214);
        assert!((one.iter().sum::<f32>() - 1.0).abs() < 1e-3, "these are probabilities");
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    assert_ne!(as_floats(&alone[0][0]), as_floats(&alone[1][0]), "the items differ");
}

#[test]
fn orientation_gives_the_same_alone_and_in_a_batch() {
    let mut session = session(fetched("orientation.onnx"));
    let item = |seed| {
        let pixels = noise(seed).take(3 * 224 * 224).map(|x| (x >> 40) as f32 / (1 << 24) as f32);
        vec![floats(&[1, 3, 224, 224], pixels)]
    };
    let batch: Vec<Inputs> = (1..=3).map(item).collect();
    let together = session.run(&batch).unwrap();
    for (one, other) in together.iter().zip(&one_by_one(&mut *session, &batch)) {
        let (one, other) = (as_floats(&one[0]), as_floats(&other[0]));
        assert_eq!(one.len(), 4);
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-4), "{one:?} {other:?}");
    }
}

#[test]
fn a_model_with_a_scalar_takes_one_request_at_a_time() {
    let model = load(fetched("silero_vad.onnx")).unwrap();
    assert_eq!(model.signature().max_batch, 0);
    let mut session = model.session(model.signature()).unwrap();
    let state = Tensor::zeros(DataType::Fp32, vec![2, 1, 128]).unwrap();
    let rate = tensor(DataType::Int64, &[], 16_000_i64.to_le_bytes().to_vec());
    let item = vec![floats(&[1, 576], (0..576).map(|i| (i as f32).sin())), state, rate];
    let outputs = session.run(&vec![item; 2]).unwrap();
    assert_eq!(outputs[0], outputs[1]);
    assert_eq!(outputs[0][0].shape, [1, 1]);
    assert!((0.0..=1.0).contains(&as_floats(&outputs[0][0])[0]));
}
