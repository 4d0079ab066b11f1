//! The faults of a simulation file: each must be possible when it happens.

use std::collections::BTreeMap;
use std::path::Path;

use fermata_core::{ClassId, ExecutorId, Span, Time};
use fermata_files::{Checker, InputError};
use fermata_sim::{End, Fault, FaultKind};
use serde::Deserialize;

use crate::input::GPUS_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFault {
    at_s: Option<f64>,
    executor: Option<i64>,
    kind: Option<RawKind>,
    factor: Option<f64>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum RawKind {
    Crash,
    Join,
    Leave,
    Slow,
}

/// Where an executor is in its life.
#[derive(Clone, Copy, PartialEq)]
enum Life {
    Present,
    Crashed,
    /// It may still finish a batch, so that its number cannot be used again.
    Left,
}

/// Checks each fault by itself, then all of them in the order of time.
pub(super) fn check(
    file: &Path,
    raw: &[RawFault],
    gpus: usize,
    end: End,
) -> Result<Vec<Fault>, InputError> {
    let numbered = (1..).zip(raw).map(|(number, raw)| {
        let checker = Checker { file, place: Some(format!("fault {number}")) };
        Ok((raw.check(&checker, end)?, checker))
    });
    let mut faults = numbered.collect::<Result<Vec<_>, InputError>>()?;
    faults.sort_by_key(|(fault, _)| fault.at);
    let present = |executor| (executor, Life::Present);
    let mut lives: BTreeMap<usize, Life> = (0..gpus).map(present).collect();
    for (fault, checker) in &faults {
        let executor = fault.executor.index();
        let life = lives.get(&executor).copied();
        let reason = match (fault.kind, life) {
            (FaultKind::Join(_), Some(Life::Present)) => "is there already",
            (FaultKind::Join(_), Some(Life::Left)) => "has left: let another number join",
            (FaultKind::Join(_), Some(Life::Crashed) | None) | (_, Some(Life::Present)) => {
                let after = match fault.kind {
                    FaultKind::Crash => Life::Crashed,
                    FaultKind::Leave => Life::Left,
                    FaultKind::Join(_) | FaultKind::Slow(_) => Life::Present,
                };
                lives.insert(executor, after);
                continue;
            }
            (_, Some(Life::Left | Life::Crashed) | None) => "is not there at that time",
        };
        return Err(checker.refuse("executor", format!("{executor} {reason}")));
    }
    Ok(faults.into_iter().map(|(fault, _)| fault).collect())
}

impl RawFault {
    fn check(&self, checker: &Checker<'_>, end: End) -> Result<Fault, InputError> {
        let seconds = checker.not_negative("at_s", checker.required("at_s", self.at_s)?)?;
        let at = Time::START + Span::from_secs(seconds);
        if let End::At(end) = end
            && at >= end
        {
            let reason = format!("{seconds} is not before duration_s, {}", end.as_secs());
            return Err(checker.refuse("at_s", reason));
        }
        let executor = checker.required("executor", self.executor)?;
        if !(0..GPUS_MAX as i64).contains(&executor) {
            let reason = format!("{executor} is not a whole number from 0 to below {GPUS_MAX}");
            return Err(checker.refuse("executor", reason));
        }
        let kind = checker.required("kind", self.kind)?;
        if kind != RawKind::Slow && self.factor.is_some() {
            return Err(checker.refuse("factor", "is only for kind = \"slow\""));
        }
        let kind = match kind {
            RawKind::Crash => FaultKind::Crash,
            RawKind::Join => FaultKind::Join(ClassId(0)),
            RawKind::Leave => FaultKind::Leave,
            RawKind::Slow => {
                let factor = checker.required("factor", self.factor)?;
                FaultKind::Slow(checker.positive("factor", factor)?)
            }
        };
        Ok(Fault { at, executor: ExecutorId(executor as u32), kind })
    }
}
