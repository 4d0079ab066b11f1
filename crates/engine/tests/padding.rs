//! Requests of different lengths run together, padded to the longest, and get the outputs that they
//! would get alone.

mod common;

use common::{
    as_floats, fetched, floats, integers, load, one_by_one, session, small, strings, tensor,
};
use fermata_engine::{
    DataType, EngineError, Inputs, Length, Model, Outputs, Padding, Session, Tensor,
};

/// A request for the small encoder with `length` numbers, all of which count.
fn sentence(length: i64, seed: i64) -> Inputs {
    let ids: Vec<i64> = (0..length).map(|at| 1 + (seed * 31 + at * 7) % 50).collect();
    vec![integers(&[1, length], &ids), integers(&[1, length], &vec![1; ids.len()])]
}

fn assert_near(together: &[Outputs], alone: &[Outputs], tolerance: f32) {
    assert_eq!(together.len(), alone.len());
    for (one, other) in together.iter().flatten().zip(alone.iter().flatten()) {
        assert_eq!(one.shape, other.shape);
        let difference = |(a, b): (&f32, &f32)| (a - b).abs();
        let (one, other) = (as_floats(one), as_floats(other));
        let largest = one.iter().zip(&other).map(difference).fold(0.0, f32::max);
        assert!(largest <= tolerance, "{largest}");
    }
}

/// A session of a model as its file declares it, apart from the padding.
fn padded_by(model: &dyn Model, padding: Option<Padding>) -> Box<dyn Session> {
    let mut signature = model.signature().clone();
    signature.length.as_mut().expect("it has a length").padding = padding;
    model.session(&signature).expect("the length fits")
}

#[test]
fn a_file_with_a_mask_is_padded_without_being_asked() {
    let model = load(small("encoder.onnx")).unwrap();
    let length = Length {
        inputs: vec![Some(0), Some(0)],
        outputs: vec![Some(0), None],
        longest: usize::MAX,
        padding: Some(Padding { fill: vec![0, 0] }),
    };
    assert_eq!(model.signature().length, Some(length));
    assert_eq!(model.signature().length_of(&sentence(5, 1)), Some(5));
    let mut session = session(small("encoder.onnx"));
    let batch: Vec<Inputs> =
        (0..).zip([3, 9, 1, 9, 4]).map(|(seed, length)| sentence(length, seed)).collect();
    let together = session.run(&batch).unwrap();
    assert_eq!(together[0][0].shape, [1, 3]);
    assert_near(&together, &one_by_one(&mut *session, &batch), 1e-6);
    // A later batch finds nothing of the earlier one.
    let batch = [sentence(2, 7), sentence(4, 8)];
    let together = session.run(&batch).unwrap();
    assert_near(&together, &one_by_one(&mut *session, &batch), 1e-6);
}

#[test]
fn what_stands_behind_the_end_does_not_count() {
    let model = load(small("encoder.onnx")).unwrap();
    let mut session = padded_by(&*model, Some(Padding { fill: vec![-9, 0] }));
    let batch = [sentence(2, 1), sentence(6, 2), sentence(5, 3)];
    let together = session.run(&batch).unwrap();
    assert_near(&together, &one_by_one(&mut *session, &batch), 1e-6);
    // Padding counts where the mask is one, so the fill was really there.
    let mut session = padded_by(&*model, Some(Padding { fill: vec![-9, 1] }));
    let mean = as_floats(&session.run(&batch).unwrap()[0][1]);
    let ids = as_integers(&batch[0][0]);
    assert_eq!(mean, [(ids.iter().sum::<i64>() - 4 * 9) as f32 / 6.0]);
}

#[test]
fn a_model_without_a_mask_is_padded_only_where_it_is_declared() {
    let model = load(small("mean.onnx")).unwrap();
    let length = model.signature().length.clone().unwrap();
    assert_eq!((length.inputs, length.padding), (vec![Some(0)], None));
    let batch: Vec<Inputs> =
        [1, 4, 2].map(|length| vec![floats(&[1, length], vec![8.0; length as usize])]).into();
    let means = |session: &mut dyn Session| -> Vec<f32> {
        let outputs = session.run(&batch).unwrap();
        outputs.iter().flat_map(|item| as_floats(&item[0])).collect()
    };
    assert_eq!(means(&mut *padded_by(&*model, None)), [8.0, 8.0, 8.0]);
    let zeros = Some(Padding { fill: vec![0] });
    assert_eq!(means(&mut *padded_by(&*model, zeros)), [2.0, 8.0, 4.0]);
    let others = Some(Padding { fill: vec![-8] });
    assert_eq!(means(&mut *padded_by(&*model, others)), [-4.0, 8.0, 0.0]);
}

#[test]
fn a_length_behind_another_axis_is_padded_in_each_row() {
    let mut session = session(small("channels.onnx"));
    let item = |length: i64| {
        let values = (0..2 * length).map(|at| (10 * length + at) as f32);
        let mask = tensor(DataType::Bool, &[1, length], vec![1; length as usize]);
        vec![floats(&[1, 2, length], values), mask]
    };
    let batch = [item(2), item(5), item(3)];
    let together = session.run(&batch).unwrap();
    for (outputs, inputs) in together.iter().zip(&batch) {
        assert_eq!(outputs[0], inputs[0]);
    }
}

#[test]
fn strings_are_padded_with_empty_ones() {
    let mut session = session(small("words.onnx"));
    let item = |words: &[&[u8]]| {
        let mask = Tensor::zeros(DataType::Int32, vec![1, words.len() as i64]).unwrap();
        vec![strings(&[1, words.len() as i64], words), mask]
    };
    let batch = [item(&[b"one"]), item(&[b"", b"two \0", b"three"]), item(&[b"four", b"\xff"])];
    for (outputs, inputs) in session.run(&batch).unwrap().iter().zip(&batch) {
        assert_eq!(outputs[0], inputs[0]);
    }
}

#[test]
fn outputs_that_are_cut_are_not_copied() {
    let mut session = session(small("encoder.onnx"));
    let outputs = session.run(&[sentence(3, 1), sentence(8, 2), sentence(2, 3)]).unwrap();
    let starts: Vec<usize> = outputs.iter().map(|item| item[0].data.as_ptr().addr()).collect();
    assert_eq!([starts[1] - starts[0], starts[2] - starts[1]], [8 * 4, 8 * 4]);
}

#[test]
fn a_large_batch_is_padded_in_parts() {
    let model = load(small("encoder.onnx")).unwrap();
    let mut signature = model.signature().clone();
    signature.max_batch = 3;
    let mut session = model.session(&signature).unwrap();
    let batch: Vec<Inputs> = (1..=8).map(|length| sentence(length, length)).collect();
    let together = session.run(&batch).unwrap();
    assert_near(&together, &one_by_one(&mut *session, &batch), 1e-6);
}

#[test]
fn lengths_that_cannot_be_are_refused_in_one_line() {
    let model = load(small("encoder.onnx")).unwrap();
    let mut signature = model.signature().clone();
    signature.length.as_mut().unwrap().longest = 6;
    let mut session = model.session(&signature).unwrap();
    let mut refuse = |item: Inputs| match session.run(&[sentence(2, 1), item]) {
        Err(EngineError::Run(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let uneven = vec![integers(&[1, 3], &[1, 2, 3]), integers(&[1, 2], &[1, 1])];
    assert_eq!(refuse(uneven), "input 'attention_mask' has length 2, input 'ids' has 3");
    assert_eq!(refuse(sentence(7, 1)), "input 'ids' has length 7, the longest is 6");
    assert_eq!(refuse(sentence(0, 1)), "input 'ids' has length 0");
    assert_eq!(refuse(vec![integers(&[1, 1], &[1])]), "1 inputs where the model takes 2");
    session.run(&[sentence(2, 1), sentence(6, 1)]).unwrap();
}

#[test]
fn an_output_that_is_not_as_long_as_it_says_is_named() {
    let mut session = session(small("stretched.onnx"));
    assert_eq!(session.run(&[sentence(2, 1), sentence(2, 2)]).unwrap()[0][0].shape, [1, 4]);
    let error = session.run(&[sentence(2, 1), sentence(3, 1)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "output 'y': its shape is [2, 6] where the longest of the batch is 3"
    );
}

#[test]
fn a_length_that_is_none_is_refused_with_the_session() {
    let model = load(small("encoder.onnx")).unwrap();
    let mut signature = model.signature().clone();
    signature.length.as_mut().unwrap().outputs[1] = Some(0);
    let Err(error) = model.session(&signature) else { panic!("it is no free axis") };
    assert!(
        error.to_string().ends_with("the length of output 'mean' is no free axis of [1]"),
        "{error}"
    );
}

fn as_integers(tensor: &Tensor) -> Vec<i64> {
    let number =
        |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("a chunk is one number"));
    tensor.data.chunks_exact(8).map(number).collect()
}

/// A request for MiniLM.
fn tokens(ids: &[i64]) -> Inputs {
    let shape = [1, ids.len() as i64];
    vec![integers(&shape, ids), integers(&shape, &vec![1; ids.len()])]
}

/// "a man is eating food .", "a man is eating a piece of bread .", "the girl is carrying a baby .",
/// "hello".
const SENTENCES: [&[i64]; 4] = [
    &[101, 1037, 2158, 2003, 5983, 2833, 1012, 102],
    &[101, 1037, 2158, 2003, 5983, 1037, 3538, 1997, 7852, 1012, 102],
    &[101, 1996, 2611, 2003, 4755, 1037, 3336, 1012, 102],
    &[101, 7592, 102],
];

#[test]
fn minilm_says_what_its_weights_say() {
    let model = load(fetched("minilm.onnx")).unwrap();
    let length = model.signature().length.clone().unwrap();
    assert_eq!((length.inputs, length.outputs), (vec![Some(0), Some(0)], vec![Some(0), None]));
    assert!(length.padding.is_some());
    let mut session = model.session(model.signature()).unwrap();
    let outputs = session.run(&SENTENCES.map(tokens)).unwrap();
    let vectors: Vec<Vec<f32>> = outputs.iter().map(|item| as_floats(&item[1])).collect();
    // Computed by `models/minilm_reference.py` from the weights alone, in double precision.
    let expected = [
        [0.03324157, 0.00440606, -0.00627694, 0.04837871],
        [0.05251841, 0.05524131, -0.01118822, -0.00574544],
        [-0.03630893, -0.03565348, -0.02722267, 0.03831993],
        [-0.06277175, 0.05495884, 0.0521648, 0.08579001],
    ];
    for (vector, expected) in vectors.iter().zip(&expected) {
        assert_eq!(vector.len(), 384);
        assert!(vector.iter().zip(expected).all(|(a, b): (&f32, &f32)| (a - b).abs() < 1e-5));
    }
    let alike = |one: usize, other: usize| -> f32 {
        vectors[one].iter().zip(&vectors[other]).map(|(a, b)| a * b).sum()
    };
    assert!((alike(0, 1) - 0.7553).abs() < 1e-3, "both eat: {}", alike(0, 1));
    assert!(alike(0, 2) < 0.0 && alike(0, 3) < 0.1);
}

#[test]
fn minilm_gives_the_same_alone_and_padded() {
    let mut session = session(fetched("minilm.onnx"));
    let lengths = [8, 128, 3, 61, 17, 96, 128, 1];
    let batch: Vec<Inputs> = (1..)
        .zip(lengths)
        .map(|(seed, length)| {
            tokens(
                &(0..length)
                    .map(|at| 1000 + (seed * 7919 + at * 104_729) % 29_000)
                    .collect::<Vec<i64>>(),
            )
        })
        .chain(SENTENCES.map(tokens))
        .collect();
    let together = session.run(&batch).unwrap();
    let alone = one_by_one(&mut *session, &batch);
    assert_near(&together, &alone, 1e-4);
    assert_eq!(together[2][0].shape, [1, 3, 384]);
    assert_ne!(as_floats(&alone[0][1]), as_floats(&alone[1][1]), "the items differ");
}
