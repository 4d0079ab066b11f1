//! Instructions of a request, counted one by one: times on shared machines say little, and many of
//! those machines have no counters to read.
//!
//! The program runs itself, in virtual time and on one thread, and stops before and after the
//! requests that count. Between the two its parent lets it go on by one instruction at a time.

use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, bail};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::trials::scheduler::Trial;

/// So many requests are counted. Each instruction takes microseconds.
const COUNTED: u64 = 1_000;
/// Before them, so many for each model, and at least so many of all: until everything has its size.
const BEFORE_EACH: u64 = 64;
const BEFORE_MIN: u64 = 20_000;

/// Instructions for each request of this trial, with all that belongs to it: drawing it, its share
/// of a batch, the executor's end.
pub(super) fn instructions(trial: &Trial, policy: &str) -> anyhow::Result<f64> {
    // On a thread of its own, since it is bound to a core.
    thread::scope(|scope| {
        let counted = scope.spawn(|| count_child(trial, policy)).join();
        counted.unwrap_or_else(|_| bail!("counting failed"))
    })
}

fn count_child(trial: &Trial, policy: &str) -> anyhow::Result<f64> {
    let program = std::env::current_exe().context("this program has no name")?;
    let number = |number: usize| number.to_string();
    let mut command = Command::new(program);
    command.args(["bench", "scheduler", "--counted", "--policy", policy]);
    command.args(["--models", &number(trial.models), "--gpus", &number(trial.executors)]);
    command.args(["--rate", &trial.rate.to_string(), "--seed", &trial.seed.to_string()]);
    command.args(["--model-threads", &number(trial.model_threads)]);
    // On one core the two take turns; on two each turn would wake the other core.
    if let Some(&core) = core_affinity::get_core_ids().unwrap_or_default().first() {
        core_affinity::set_for_current(core);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let child = Pid::from_raw(child.context("cannot run itself")?.id() as i32);
    let counted = count(child);
    // Whether or not it is still there.
    let _ = ptrace::kill(child);
    let _ = waitpid(child, None);
    Ok(counted? as f64 / COUNTED as f64)
}

fn count(child: Pid) -> anyhow::Result<u64> {
    match waitpid(child, None)? {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
        other => bail!("did not stop to be counted: {other:?}"),
    }
    let mut steps = 0;
    loop {
        ptrace::step(child, None)?;
        match waitpid(child, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => steps += 1,
            WaitStatus::Stopped(_, Signal::SIGSTOP) => return Ok(steps),
            other => bail!("ended while it was counted: {other:?}"),
        }
    }
}

/// What the program does that is counted.
pub(super) fn be_counted(trial: &Trial) -> anyhow::Result<()> {
    ptrace::traceme().context("may not be traced")?;
    let before = BEFORE_MIN.max(BEFORE_EACH * trial.models as u64);
    let (mut begun, mut stopped) = (false, Ok(()));
    trial.run_in_steps(|came| {
        let here = if begun { before + COUNTED } else { before };
        if came >= here && stopped.is_ok() {
            stopped = raise(Signal::SIGSTOP);
            begun = true;
        }
    });
    stopped.context("cannot stop")
}
