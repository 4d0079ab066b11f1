//! Measures how long a model takes on a GPU, by batch size and share: `gpu MODEL.onnx
//! FOLDER-OF-ONNX-RUNTIME [PERCENT ...]`.
//!
//! The example is its own worker. Inputs are random; each batch begins while the one before it
//! runs, so that copies are hidden as in the server.

#![allow(clippy::print_stdout, reason = "it is what an example does")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use fermata_engine::cuda::{self, SUBCOMMAND, Workers};
use fermata_engine::{Cut, Inputs, Session, Source, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == SUBCOMMAND) {
        return work(&arguments[1..]);
    }
    let [model, folder, percents @ ..] = arguments.as_slice() else {
        return Err("say which model, and where ONNX Runtime is".into());
    };
    let workers = Workers::new([folder])?;
    let gpus = workers.gpus()?;
    let gpu = gpus.first().ok_or("there is no GPU")?;
    let began = Instant::now();
    let seat = workers.seat(gpu)?;
    let model = seat.load(&Source { file: model.into(), threads: 1, memory: None })?;
    let read = began.elapsed();
    let mut session = model.session(model.signature())?;
    println!("{}: read after {read:.2?}, ready after {:.2?}", seat.device(), began.elapsed());
    let largest = model.signature().max_batch.clamp(1, 64);
    let item: Inputs = model
        .signature()
        .inputs
        .iter()
        .map(|spec| {
            let shape = std::iter::once(1).chain(spec.shape.iter().copied()).collect();
            let zeros = Tensor::zeros(spec.datatype, shape).ok_or("a shape that is not fixed")?;
            let bytes: Vec<u8> = (0..zeros.data.len()).map(|at| (at * 31 % 2) as u8).collect();
            Ok(Tensor { data: bytes.into(), ..zeros })
        })
        .collect::<Result<_, &str>>()?;
    let batch = vec![item; largest];
    let sizes: Vec<usize> =
        [1, 2, 4, 8, 16, 32, 64].into_iter().filter(|&size| size <= largest).collect();
    let began = Instant::now();
    sizes.iter().try_for_each(|&size| session.run(&batch[..size]).map(drop))?;
    println!("captured {} sizes in {:.2?}", sizes.len(), began.elapsed());
    println!("memory: {:?}", seat.memory()?);
    for percent in std::iter::once(100).chain(percents.iter().filter_map(|word| word.parse().ok()))
    {
        let cut = Cut::new(&[percent], gpu.multiprocessors, gpu.step)?;
        let began = Instant::now();
        seat.set_share(&cut, 0)?;
        let moved = began.elapsed();
        println!("{percent} %, {:?} multiprocessors, moved in {moved:.2?}", cut.multiprocessors());
        for &size in &sizes {
            let (device, wall) = time(session.as_mut(), &batch[..size])?;
            let hidden = 100.0 * (wall / device - 1.0);
            println!(
                "  {size:3}: {device:.3} ms on the device, {wall:.3} ms back to back \
                 ({hidden:+.1} %)"
            );
        }
    }
    Ok(())
}

/// Milliseconds: the median on the device, and the mean by the clock for batches that follow each
/// other.
fn time(session: &mut dyn Session, batch: &[Inputs]) -> Result<(f64, f64), Box<dyn Error>> {
    const RUNS: usize = 60;
    let mut took = Vec::new();
    let mut ahead = session.begin(batch).ok_or("it takes no batches ahead")??;
    let began = Instant::now();
    for _ in 0..RUNS {
        let next = session.begin(batch).ok_or("it takes no batches ahead")??;
        took.push(std::mem::replace(&mut ahead, next).wait()?.took.as_ms());
    }
    let wall = began.elapsed().as_secs_f64() * 1e3 / RUNS as f64;
    ahead.wait()?;
    took.sort_by(f64::total_cmp);
    Ok((took[RUNS / 2], wall))
}

fn work(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    if arguments.iter().any(|word| word == "--list") {
        println!("{}", serde_json::to_string(&cuda::gpus()?)?);
        return Ok(());
    }
    let after = |name: &'static str| {
        let pairs = arguments.windows(2).filter(move |pair| pair[0] == name);
        pairs.map(|pair| pair[1].clone())
    };
    let gpu = after("--gpu").next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let folders: Vec<PathBuf> = after("--library").map(PathBuf::from).collect();
    Ok(cuda::work(gpu, &folders)?)
}
