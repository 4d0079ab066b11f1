//! The GPUs of `fermata serve`: which, how many seats each, and how they are cut at first.

use std::sync::Arc;
use std::time::Duration;

use fermata_engine::cuda::Workers;
use fermata_engine::{Cut, EngineError, Gpu, Seat};
use fermata_files::{InputError, in_one_line, shares};
use fermata_server::gpu::{Candidate, GpuSetup, Question, SharePlan};
use fermata_sim::weigh;

use super::ServeArgs;

/// Who knows the GPUs of this machine.
trait Devices {
    /// Those that there are.
    fn gpus(&self) -> Result<Vec<Gpu>, EngineError>;

    /// Seats of one GPU run at the same time from now on.
    fn run_side_by_side(&self) -> Result<(), EngineError>;

    /// One more seat on one of them.
    fn seat(&self, gpu: &Gpu) -> Result<Arc<dyn Seat>, EngineError>;
}

/// Which GPUs are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    All,
    None,
    Some(Vec<usize>),
}

/// What was said of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wishes {
    choice: Choice,
    /// `None`, if the server is to cut them as the load needs it.
    shares: Option<Vec<u32>>,
    /// Of each GPU; `None`, if the server is to choose.
    seats: Option<usize>,
}

/// Seats of each GPU, where the server is to cut them and nobody says how many: as many as any cut
/// that it tries has shares.
const SEATS_AUTO: usize = 4;

/// Starts the seats that are asked for. `None` where nobody asks for a GPU.
pub(super) fn setup(args: &ServeArgs, epoch: Duration) -> Result<Option<GpuSetup>, InputError> {
    let wishes = Wishes::read(args)?;
    if wishes.choice == Choice::None {
        if args.gpus.is_none() && has_library() {
            tell_of_gpus();
        }
        return Ok(None);
    }
    let devices = devices().map_err(|error| refuse(&error))?;
    let chosen = wishes.choose(devices.as_ref())?;
    if !has_library() {
        let reason = "ONNX Runtime for GPUs is not there: run `make setup-gpu`, or set \
                      ORT_DYLIB_PATH to the library";
        return Err(refuse(&EngineError::Library(reason.to_owned())));
    }
    let mut setup = wishes.start(devices.as_ref(), &chosen)?;
    setup.plan = wishes.shares.is_none().then_some(SharePlan { epoch, weigh });
    Ok(Some(setup))
}

/// The goodput of each cut of a question, as the simulator finds it.
fn weigh(question: &Question) -> Vec<f64> {
    let cut = |cut: &Candidate| weigh::Cut {
        percents: cut.percents.clone(),
        classes: cut.classes.clone(),
        specs: cut.specs.clone(),
    };
    weigh::weigh(&weigh::Question {
        rates: question.rates.clone(),
        network: question.network,
        cuts: question.cuts.iter().map(cut).collect(),
    })
}

/// Whether there is a library to use GPUs with; what is wrong with it shows when it is loaded.
fn has_library() -> bool {
    let said = std::env::var_os("ORT_DYLIB_PATH").is_some_and(|path| !path.is_empty());
    let folders = super::gpu_library_folders();
    said || folders.iter().any(|folder| folder.join("libonnxruntime_providers_cuda.so").is_file())
}

/// Says that there are GPUs which nobody asks for. Beside the start, since it may take a while to
/// find out.
fn tell_of_gpus() {
    std::thread::spawn(|| {
        let there = devices().and_then(|devices| devices.gpus()).unwrap_or_default();
        if let Some(first) = there.first() {
            let (gpus, name) = (there.len(), &first.name);
            tracing::info!(gpus, name, "there are GPUs: --gpus all serves on them");
        }
    });
}

/// The GPUs of this machine, where it has any.
fn devices() -> Result<Box<dyn Devices>, EngineError> {
    Ok(Box::new(Workers::new(super::gpu_library_folders())?))
}

impl Devices for Arc<Workers> {
    fn gpus(&self) -> Result<Vec<Gpu>, EngineError> {
        Workers::gpus(self)
    }

    fn run_side_by_side(&self) -> Result<(), EngineError> {
        Workers::run_side_by_side(self)
    }

    fn seat(&self, gpu: &Gpu) -> Result<Arc<dyn Seat>, EngineError> {
        Workers::seat(self, gpu)
    }
}

impl Wishes {
    fn read(args: &ServeArgs) -> Result<Self, InputError> {
        let choice = args.gpus.as_deref().map_or(Ok(Choice::None), Choice::read)?;
        let auto = args.shares.as_deref().is_some_and(|text| text.trim() == "auto");
        let given = args.shares.as_deref().filter(|_| !auto);
        let given = given.map(|text| shares("--shares", text)).transpose()?;
        if choice == Choice::None {
            let alone = [("--shares", args.shares.is_some()), ("--seats", args.seats.is_some())];
            if let Some((name, _)) = alone.into_iter().find(|(_, given)| *given) {
                let reason = "is for GPUs: add --gpus all".to_owned();
                return Err(InputError::Argument { name, reason });
            }
        }
        let seats = args.seats.map(|seats| seats as usize);
        let refuse = |reason| Err(InputError::Argument { name: "--seats", reason });
        if auto {
            if seats == Some(1) {
                return refuse("1 leaves nothing to choose for --shares auto".to_owned());
            }
            return Ok(Self { choice, shares: None, seats });
        }
        let shares = given.unwrap_or_else(|| vec![100]);
        let seats = seats.unwrap_or(shares.len());
        if seats < shares.len() {
            return refuse(format!(
                "{seats} are fewer than the {} shares of --shares",
                shares.len()
            ));
        }
        Ok(Self { choice, shares: Some(shares), seats: Some(seats) })
    }

    /// How each GPU is cut at first.
    fn first_shares(&self) -> &[u32] {
        self.shares.as_deref().unwrap_or(&[100])
    }

    /// How many seats a GPU gets.
    fn seats_of(&self, gpu: &Gpu) -> usize {
        let steps = (gpu.multiprocessors / gpu.step.max(1)).max(1) as usize;
        self.seats.unwrap_or(SEATS_AUTO.min(steps))
    }

    /// The GPUs that are asked for, if they can be cut so.
    fn choose(&self, devices: &dyn Devices) -> Result<Vec<Gpu>, InputError> {
        let there = devices.gpus().map_err(|error| refuse(&error))?;
        let chosen = self.choice.of(&there)?;
        for gpu in &chosen {
            Cut::new(self.first_shares(), gpu.multiprocessors, gpu.step).map_err(|error| {
                let reason = format!("GPU {} ({}): {error}", gpu.index, gpu.name);
                InputError::Argument { name: "--shares", reason }
            })?;
        }
        Ok(chosen)
    }

    fn start(&self, devices: &dyn Devices, chosen: &[Gpu]) -> Result<GpuSetup, InputError> {
        if chosen.iter().any(|gpu| self.seats_of(gpu) > 1)
            && let Err(error) = devices.run_side_by_side()
        {
            tracing::warn!(%error, "shares of a GPU take turns, and do not run at the same time");
        }
        let seats = |gpu: &Gpu| (0..self.seats_of(gpu)).map(|_| devices.seat(gpu)).collect();
        let seats: Result<Vec<Vec<_>>, EngineError> = chosen.iter().map(seats).collect();
        let seats = seats.map_err(|error| refuse(&error))?;
        Ok(GpuSetup { seats, shares: self.first_shares().to_vec(), plan: None })
    }
}

impl Choice {
    fn read(text: &str) -> Result<Self, InputError> {
        let refuse = |reason: String| InputError::Argument { name: "--gpus", reason };
        match text.trim() {
            "all" => return Ok(Self::All),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let numbers: Option<Vec<usize>> =
            text.split(',').map(|word| word.trim().parse().ok()).collect();
        let numbers = numbers.ok_or_else(|| {
            let shown = in_one_line(text);
            refuse(format!("'{shown}' is neither all, none, nor numbers of GPUs such as 0,1"))
        })?;
        let again = (1..numbers.len()).find(|&at| numbers[..at].contains(&numbers[at]));
        match again {
            Some(at) => Err(refuse(format!("GPU {} is named twice", numbers[at]))),
            None => Ok(Self::Some(numbers)),
        }
    }

    /// Those of the GPUs that there are.
    fn of(&self, there: &[Gpu]) -> Result<Vec<Gpu>, InputError> {
        let refuse = |reason: String| InputError::Argument { name: "--gpus", reason };
        if there.is_empty() {
            return Err(refuse(format!("this machine has no GPU that CUDA can use; {WITHOUT}")));
        }
        let numbers = match self {
            Self::All => return Ok(there.to_vec()),
            Self::None => return Ok(Vec::new()),
            Self::Some(numbers) => numbers,
        };
        let find = |&number: &usize| {
            there.iter().find(|gpu| gpu.index == number).cloned().ok_or_else(|| {
                let known: Vec<String> = there.iter().map(|gpu| gpu.index.to_string()).collect();
                refuse(format!("there is no GPU {number}: there are {}", known.join(", ")))
            })
        };
        numbers.iter().map(find).collect()
    }
}

/// What can be done where there is no GPU, or no way to use it.
const WITHOUT: &str = "--gpus none serves on the processors";

fn refuse(error: &EngineError) -> InputError {
    let reason = format!("{}; {WITHOUT}", in_one_line(&error.to_string()));
    InputError::Argument { name: "--gpus", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose seats cannot be started.
    struct Machine(Vec<Gpu>);

    impl Devices for Machine {
        fn gpus(&self) -> Result<Vec<Gpu>, EngineError> {
            Ok(self.0.clone())
        }

        fn run_side_by_side(&self) -> Result<(), EngineError> {
            Ok(())
        }

        fn seat(&self, gpu: &Gpu) -> Result<Arc<dyn Seat>, EngineError> {
            Err(EngineError::Library(format!("no seat on GPU {}", gpu.index)))
        }
    }

    fn machine(gpus: usize) -> Machine {
        let gpu = |index| Gpu {
            index,
            name: "H200".to_owned(),
            memory: 1,
            multiprocessors: 132,
            step: 8,
        };
        Machine((0..gpus).map(gpu).collect())
    }

    fn wishes(choice: &str, shares: &[u32]) -> Wishes {
        let (choice, shares) = (Choice::read(choice).unwrap(), shares.to_vec());
        Wishes { choice, seats: Some(shares.len()), shares: Some(shares) }
    }

    #[test]
    fn gpus_are_chosen_by_number() {
        let there = machine(3).0;
        let chosen = |text: &str| {
            let gpus = Choice::read(text).unwrap().of(&there).unwrap();
            gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>()
        };
        assert_eq!(chosen("all"), [0, 1, 2]);
        assert_eq!(chosen("none"), [0; 0]);
        assert_eq!(chosen("2, 0"), [2, 0]);
        assert_eq!(Choice::read("none").unwrap(), Choice::None);
    }

    #[test]
    fn a_gpu_that_the_server_cuts_has_four_seats_or_as_many_as_it_has_steps() {
        let gpu = machine(1).0.remove(0);
        let auto = |seats| Wishes { choice: Choice::All, shares: None, seats };
        assert_eq!(auto(None).first_shares(), [100]);
        assert_eq!(auto(None).seats_of(&gpu), 4);
        assert_eq!(auto(Some(2)).seats_of(&gpu), 2);
        let small = Gpu { multiprocessors: 20, ..gpu };
        assert_eq!(auto(None).seats_of(&small), 2);
        assert_eq!(auto(None).seats_of(&Gpu { multiprocessors: 4, ..small }), 1);
    }

    #[test]
    fn what_cannot_be_had_is_said_in_one_line() {
        for (text, reason) in [
            ("some", "--gpus: 'some' is neither all, none, nor numbers of GPUs"),
            ("0,,1", "is neither all, none, nor numbers"),
            ("-1", "is neither all, none, nor numbers"),
            ("1,0,1", "--gpus: GPU 1 is named twice"),
        ] {
            let error = Choice::read(text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for (choice, shares, gpus, reason) in [
            ("all", &[100][..], 0, "--gpus: this machine has no GPU"),
            ("7", &[100], 2, "--gpus: there is no GPU 7: there are 0, 1"),
            ("all", &[5; 17], 1, "--shares: GPU 0 (H200): 17 shares are too many"),
            ("1", &[100], 2, "--gpus: no seat on GPU 1"),
        ] {
            let (wishes, machine) = (wishes(choice, shares), machine(gpus));
            let started = wishes.choose(&machine).and_then(|gpus| wishes.start(&machine, &gpus));
            let error = started.unwrap_err().to_string();
            assert!(error.contains(reason) && error.lines().count() == 1, "{error}");
        }
    }
}
