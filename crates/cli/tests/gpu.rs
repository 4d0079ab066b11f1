//! The GPU engine on a real GPU. Where there is none, each test says why it was skipped.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, and one that is skipped says so"
)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fermata_engine::cuda::Workers;
use fermata_engine::{
    Cut, DataType, Engine, EngineError, Gpu, Inputs, OnnxRuntime, Outputs, Signature, Source,
    Tensor,
};
use fermata_onnx::zoo::{Net, Precision};

/// One test at a time: they look at the memory of the GPU.
static TURN: Mutex<()> = Mutex::new(());

struct Machine {
    workers: Arc<Workers>,
    gpu: Gpu,
    _turn: MutexGuard<'static, ()>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first GPU, if it can be used.
fn machine() -> Option<Machine> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = root().join(".fermata/lib-cuda");
    let workers = Workers::of(env!("CARGO_BIN_EXE_fermata").into(), [&folder]);
    let reason = match workers.gpus() {
        Ok(gpus) if gpus.is_empty() => "there is no GPU".to_owned(),
        Ok(_) if !folder.is_dir() && std::env::var_os("ORT_DYLIB_PATH").is_none() => {
            "there is no ONNX Runtime for GPUs: run `make setup-gpu`".to_owned()
        }
        Ok(mut gpus) => return Some(Machine { workers, gpu: gpus.remove(0), _turn: turn }),
        Err(error) => error.to_string(),
    };
    println!("skipped: {reason}");
    None
}

fn source(name: &str) -> Source {
    let file = root().join("crates/engine/tests/models").join(format!("{name}.onnx"));
    Source { file, threads: 1, memory: None }
}

/// A network with random weights.
fn network(net: Net) -> Source {
    let file = std::env::temp_dir().join(format!("fermata-{}-{net}.onnx", std::process::id()));
    net.build(Precision::Fp16, 1).write(&file).unwrap();
    Source { file, threads: 8, memory: None }
}

fn on_cpu() -> OnnxRuntime {
    OnnxRuntime::new([root().join(".fermata/lib-cuda"), root().join(".fermata/lib")]).unwrap()
}

/// An item with other numbers for each seed, two along every free axis, small enough for any type.
fn item(signature: &Signature, seed: usize) -> Inputs {
    let batch = (signature.max_batch > 0).then_some(1);
    let input = |spec: &fermata_engine::TensorSpec| {
        let axes = spec.shape.iter().map(|&axis| if axis < 0 { 2 } else { axis });
        let shape: Vec<i64> = batch.into_iter().chain(axes).collect();
        let elements = Tensor::elements(&shape).unwrap();
        let number = |at: usize| ((at * 7 + seed * 13) % 2) as i64;
        let data: Bytes = match spec.datatype {
            DataType::Bytes => (0..elements)
                .flat_map(|at| {
                    let word = format!("word {}", at + seed);
                    let mut text = (word.len() as u32).to_le_bytes().to_vec();
                    text.extend_from_slice(word.as_bytes());
                    text
                })
                .collect(),
            DataType::Uint8 => {
                (0..elements).map(|at| ((at / 3 * 31 + seed * 57) % 251) as u8).collect()
            }
            datatype => {
                (0..elements).flat_map(|at| datatype.whole_number(number(at)).unwrap()).collect()
            }
        };
        Tensor { datatype: spec.datatype, shape, data }
    };
    signature.inputs.iter().map(input).collect()
}

fn run(engine: &dyn Engine, name: &str, sizes: &[usize]) -> Result<Vec<Vec<Outputs>>, EngineError> {
    run_source(engine, &source(name), sizes)
}

fn run_source(
    engine: &dyn Engine,
    source: &Source,
    sizes: &[usize],
) -> Result<Vec<Vec<Outputs>>, EngineError> {
    let model = engine.load(source)?;
    let mut session = model.session(model.signature())?;
    let most = model.signature().max_batch.max(1);
    let batches = sizes.iter().map(|&size| {
        let batch: Vec<Inputs> =
            (0..size.min(most)).map(|seed| item(model.signature(), seed)).collect();
        session.run(&batch)
    });
    batches.collect()
}

#[test]
fn what_a_gpu_computes_is_what_the_processor_computes() {
    let Some(machine) = machine() else { return };
    let seat = machine.workers.seat(&machine.gpu).unwrap();
    let (all, step) = (machine.gpu.multiprocessors, machine.gpu.step);
    // Captured ones; then one that has any shape, and strings.
    for name in ["add", "identity_fp16", "fixed", "passthrough", "mean", "dynamic", "words"] {
        let expected = run(&on_cpu(), name, &[1, 2, 7]).unwrap();
        for percents in [&[100][..], &[20, 80], &[50, 50], &[33, 33, 34], &[25, 25, 25, 25]] {
            let cut = Cut::new(percents, all, step).unwrap();
            // The last one has what is left.
            for part in [0, percents.len() - 1] {
                seat.set_share(&cut, part).unwrap();
                let found = run(seat.as_ref(), name, &[1, 2, 7]);
                let found = found.unwrap_or_else(|error| panic!("{name} on {percents:?}: {error}"));
                assert_eq!(found, expected, "{name} on {percents:?}");
            }
        }
    }
}

/// All numbers of FP32 outputs.
fn numbers(batches: &[Vec<Outputs>]) -> Vec<f32> {
    let tensors = batches.iter().flatten().flatten();
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    tensors.flat_map(|tensor| tensor.data.chunks_exact(4).map(number)).collect()
}

/// Kernels that were captured for one size must still be there when others were run: cuDNN unloads
/// some.
#[test]
fn networks_compute_the_same_at_every_size_in_any_order() {
    let Some(machine) = machine() else { return };
    // The second is told what the first found out.
    let seats = [0, 1].map(|_| machine.workers.seat(&machine.gpu).unwrap());
    let sizes = [8, 1, 3, 16, 8, 1, 16, 3];
    for net in [Net::LeNet, Net::BertShort, Net::ResNet50, Net::MobileNetV2] {
        let source = network(net);
        let expected = numbers(&run_source(&on_cpu(), &source, &sizes).unwrap());
        let largest = expected.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        for seat in &seats {
            let found = numbers(&run_source(seat.as_ref(), &source, &sizes).unwrap());
            assert_eq!(found.len(), expected.len(), "{net}");
            assert!(found.iter().all(|number| number.is_finite()), "{net}");
            let differ = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
            let differ = differ.fold(0.0, f32::max);
            assert!(differ <= 0.05 * largest, "{net}: {differ} of {largest}");
        }
        std::fs::remove_file(&source.file).unwrap();
    }
}

/// What is loaded runs on while its seat makes ready for a share, whether it takes that share in
/// the end or another.
#[test]
fn a_seat_that_makes_ready_for_a_share_runs_on_and_may_take_another() {
    let Some(machine) = machine() else { return };
    let seat = machine.workers.seat(&machine.gpu).unwrap();
    let lenet = network(Net::LeNet);
    let model = seat.load(&lenet).unwrap();
    let mut session = model.session(model.signature()).unwrap();
    let batch: Vec<Inputs> = (0..5).map(|seed| item(model.signature(), seed)).collect();
    let expected = session.run(&batch).unwrap();
    let cut = |percents: &[u32]| {
        Cut::new(percents, machine.gpu.multiprocessors, machine.gpu.step).unwrap()
    };
    let (halves, thirds, whole) = (cut(&[50, 50]), cut(&[33, 33, 34]), cut(&[100]));
    let (mut second, few) = (None, &batch[..2]);
    let expected_few = session.run(few).unwrap();
    for (ready, taken) in [
        (&halves, &halves),
        (&thirds, &whole),
        (&thirds, &thirds),
        (&halves, &thirds),
        (&whole, &whole),
    ] {
        let running = session.begin(&batch).unwrap().unwrap();
        seat.prepare_share(ready, 0).unwrap();
        assert_eq!(running.wait().unwrap().outputs, expected);
        assert_eq!(session.run(few).unwrap(), expected_few);
        // Of one that comes in between, nothing was made ready.
        let other = second.get_or_insert_with(|| seat.load(&source("add")).unwrap());
        let mut added = other.session(other.signature()).unwrap();
        let add = vec![item(other.signature(), 1)];
        let sum = added.run(&add).unwrap();
        let running = session.begin(&batch).unwrap().unwrap();
        seat.set_share(taken, 0).unwrap();
        assert_eq!(running.wait().unwrap().outputs, expected);
        assert_eq!(session.run(few).unwrap(), expected_few, "on {taken}");
        assert_eq!(session.run(&batch).unwrap(), expected, "on {taken}");
        assert_eq!(added.run(&add).unwrap(), sum, "on {taken}");
    }
    std::fs::remove_file(&lenet.file).unwrap();
}

#[test]
fn batches_are_begun_ahead_and_end_in_order() {
    let Some(machine) = machine() else { return };
    let seat = machine.workers.seat(&machine.gpu).unwrap();
    let model = seat.load(&source("add")).unwrap();
    let mut session = model.session(model.signature()).unwrap();
    let mut cpu = on_cpu().load(&source("add")).unwrap().session(model.signature()).unwrap();
    let batch =
        |seed: usize| vec![item(model.signature(), seed), item(model.signature(), seed + 1)];
    for round in 0..20 {
        let (one, two) = (batch(round), batch(round + 5));
        let first = session.begin(&one).unwrap().unwrap();
        let second = session.begin(&two).unwrap().unwrap();
        assert_eq!(first.wait().unwrap().outputs, cpu.run(&one).unwrap());
        assert_eq!(second.wait().unwrap().outputs, cpu.run(&two).unwrap());
    }
}

#[test]
fn what_is_unloaded_gives_its_memory_back() {
    let Some(machine) = machine() else { return };
    let seat = machine.workers.seat(&machine.gpu).unwrap();
    // What libraries take for themselves, they take with the first model.
    run(seat.as_ref(), "mean", &[1, 64]).unwrap();
    let before = seat.memory().unwrap().used;
    for _ in 0..5 {
        run(seat.as_ref(), "add", &[1, 64]).unwrap();
    }
    let after = seat.memory().unwrap().used;
    assert!(after <= before + (64 << 20), "{before} bytes before, {after} after");
}

#[test]
fn a_worker_that_is_killed_is_lost_and_comes_back() {
    let Some(machine) = machine() else { return };
    machine.workers.run_side_by_side().unwrap();
    let [one, other] = [0, 1].map(|part| {
        let seat = machine.workers.seat(&machine.gpu).unwrap();
        let cut = Cut::new(&[50, 50], machine.gpu.multiprocessors, machine.gpu.step).unwrap();
        seat.set_share(&cut, part).unwrap();
        seat
    });
    let model = one.load(&source("add")).unwrap();
    let mut session = model.session(model.signature()).unwrap();
    let batch = vec![item(model.signature(), 0)];
    session.run(&batch).unwrap();
    kill_one_worker();
    while !one.is_lost() && !other.is_lost() {
        std::thread::yield_now();
    }
    let (lost, well) = if one.is_lost() { (&one, &other) } else { (&other, &one) };
    run(well.as_ref(), "add", &[1, 2]).unwrap();
    assert!(matches!(run(lost.as_ref(), "add", &[1]), Err(EngineError::Lost(_))));
    lost.restart().unwrap();
    run(lost.as_ref(), "add", &[1, 2]).unwrap();
    if Arc::ptr_eq(lost, &one) {
        assert!(matches!(session.run(&batch), Err(EngineError::Lost(_))), "sessions stay lost");
    }
}

/// Kills a child of this process that is a worker.
fn kill_one_worker() {
    let parent = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let after_name = stat.rsplit_once(')')?.1;
        (after_name.split_whitespace().nth(1)? == parent).then_some(pid)
    });
    let worker = tasks.into_iter().find(|pid| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("gpu-worker") && !line.contains("--list")
        })
    });
    let worker = worker.expect("there is a worker").to_string();
    assert!(std::process::Command::new("kill").args(["-9", &worker]).status().unwrap().success());
}

#[test]
fn models_that_cannot_be_read_say_so() {
    let Some(machine) = machine() else { return };
    let seat = machine.workers.seat(&machine.gpu).unwrap();
    let missing = Source { file: "nowhere.onnx".into(), threads: 1, memory: None };
    let message = seat.load(&missing).err().unwrap().to_string();
    assert!(message.contains("nowhere.onnx") && !message.contains('\n'), "{message}");
}
