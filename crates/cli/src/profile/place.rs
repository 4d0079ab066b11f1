//! Where models are measured: on the processors, or on shares of a GPU.

use std::sync::Arc;

use fermata_engine::{Cut, Engine, EngineError, OnnxRuntime, Seat};
use fermata_files::{InputError, in_one_line};

use super::ProfileArgs;
use crate::serve::library_folders;

/// Where models are measured.
pub(super) enum Place {
    Processors,
    Share { seat: Arc<dyn Seat>, cut: Cut },
}

impl Place {
    /// Those that are asked for. All shares are of one seat, one after the other.
    pub(super) fn all(args: &ProfileArgs) -> Result<Vec<Self>, InputError> {
        let Some(number) = args.gpu else { return Ok(vec![Self::Processors]) };
        let refuse = |name, reason: String| InputError::Argument { name, reason };
        let wrong = |error: EngineError| refuse("--gpu", in_one_line(&error.to_string()));
        let (workers, gpu) = crate::gpu::find(number)?;
        let percents = if args.share.is_empty() { &[100][..] } else { &args.share };
        let cut = |&percent: &u32| {
            Cut::new(&[percent], gpu.multiprocessors, gpu.step)
                .map_err(|error| refuse("--share", error.to_string()))
        };
        let cuts: Vec<Cut> = percents.iter().map(cut).collect::<Result<_, _>>()?;
        let seat = workers.seat(&gpu).map_err(wrong)?;
        Ok(cuts.into_iter().map(|cut| Self::Share { seat: seat.clone(), cut }).collect())
    }

    /// What runs them there. Of a seat, one place at a time.
    pub(super) fn engine(&self) -> Result<Arc<dyn Engine>, EngineError> {
        match self {
            Self::Processors => Ok(Arc::new(OnnxRuntime::new(library_folders())?)),
            Self::Share { seat, cut } => {
                seat.set_share(cut, 0)?;
                Ok(seat.clone())
            }
        }
    }
}
