//! `fermata top`: what a running server does, live.
//!
//! `status` is what the server says, `figures` what happened between two looks, `text` how it is
//! told, and `screen` the terminal. Escape sequences are few enough to be written by hand.

mod args;
mod figures;
mod screen;
mod status;
#[cfg(test)]
mod tests;
mod text;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::Context;
use fermata_files::{InputError, duration, output};
use fermata_load::client::{CallError, Code, Protocol, Target, http};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep_until;

pub(crate) use args::TopArgs;
use figures::History;
use screen::Screen;
use status::Status;
use text::{Line, Room};

/// Between two looks, on a terminal and without one.
const LIVE: Duration = Duration::from_secs(1);
const IN_TEXTS: Duration = Duration::from_secs(5);
/// Between the two looks of the first text: one look alone tells no rate.
const FIRST: Duration = Duration::from_secs(1);
/// A server that is so busy that it does not answer within this is as good as not there.
const PATIENCE: Duration = Duration::from_secs(5);
const TEXT_WIDTH: usize = 140;
const TEXT_MODELS: usize = 20;

/// Runs the command.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let plan = Plan::of(args)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match (plan.json, plan.live) {
            (true, _) => json(&plan).await,
            (false, true) => live(&plan).await,
            (false, false) => texts(&plan).await,
        }
    })
}

/// Checked arguments.
struct Plan {
    target: Target,
    /// `None` for ever, or for one look.
    over: Option<Duration>,
    every: Duration,
    models: Option<usize>,
    json: bool,
    live: bool,
}

impl Plan {
    fn of(args: &TopArgs) -> Result<Self, InputError> {
        let target = Target::parse(&args.url)?;
        if target.protocol == Protocol::Grpc {
            let reason =
                format!("{target} is gRPC: give the server's HTTP address, http://host:8000");
            return Err(InputError::Argument { name: "URL", reason });
        }
        let over = args.for_.as_ref().map(|text| duration("--for", text, false)).transpose()?;
        let live = io::stdout().is_terminal() && !args.once && !args.json;
        let every = args.every.as_ref().map(|text| duration("--every", text, false)).transpose()?;
        let usual = if live || args.json { LIVE } else { IN_TEXTS };
        Ok(Self {
            target,
            over: over.filter(|_| !args.once),
            every: every.unwrap_or(usual).max(Duration::from_millis(100)),
            models: args.models.map(|models| models as usize),
            json: args.json,
            live,
        })
    }

    /// Whether there is time for so many looks.
    fn goes_on(&self, looks: u32) -> bool {
        self.over.is_some_and(|over| looks * self.every <= over)
    }

    async fn body(&self) -> Result<Vec<u8>, CallError> {
        http::call(&self.target, "GET", "/status.json", "", PATIENCE).await
    }

    async fn look(&self) -> Result<Status, InputError> {
        let refuse = |reason| InputError::Argument { name: "URL", reason };
        let body = self.body().await.map_err(|error| refuse(self.reason(&error)))?;
        serde_json::from_slice(&body)
            .map_err(|error| refuse(format!("{} has another /status.json: {error}", self.target)))
    }

    fn reason(&self, error: &CallError) -> String {
        match error {
            CallError::Refused { code: Code::Http(404), .. } => {
                format!("{} is not Fermata: it has no /status.json", self.target)
            }
            error => error.at(&self.target),
        }
    }

    fn lines(&self, history: &History, trouble: Option<&str>, room: Room) -> Vec<Line> {
        let (Some(status), Some(figures)) = (history.last(), history.figures()) else {
            return Vec::new();
        };
        text::render(&self.target.to_string(), status, &figures, trouble, room)
    }
}

/// Passes on what the server says.
async fn json(plan: &Plan) -> anyhow::Result<()> {
    let started = Instant::now();
    for look in 1.. {
        let refuse = |error| InputError::Argument { name: "URL", reason: plan.reason(&error) };
        let body = plan.body().await.map_err(refuse)?;
        output::print(&format!("{}\n", String::from_utf8_lossy(&body).trim_end()))?;
        if !plan.goes_on(look) {
            break;
        }
        sleep_until((started + look * plan.every).into()).await;
    }
    Ok(())
}

/// One text, or one every few seconds.
async fn texts(plan: &Plan) -> anyhow::Result<()> {
    let models = plan.models.unwrap_or(TEXT_MODELS);
    let room = Room { width: TEXT_WIDTH, height: None, models };
    let every = if plan.over.is_some() { plan.every } else { FIRST };
    let started = Instant::now();
    let mut history = History::default();
    history.push(started.elapsed(), plan.look().await?);
    for look in 1.. {
        let next = look * every;
        sleep_until((started + plan.over.map_or(next, |over| next.min(over))).into()).await;
        history.push(started.elapsed(), plan.look().await?);
        let lines = plan.lines(&history, None, room);
        let text: String = lines.iter().map(|line| line.plain() + "\n").collect();
        let more = plan.goes_on(look + 1);
        output::print(&if more { text + "\n" } else { text })?;
        if !more {
            break;
        }
    }
    Ok(())
}

/// On the terminal, until somebody leaves.
async fn live(plan: &Plan) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut history = History::default();
    // Should there be no server, the terminal is left alone.
    history.push(started.elapsed(), plan.look().await?);
    let mut interrupt = signal(SignalKind::interrupt()).context("Ctrl-C cannot be caught")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be caught")?;
    let mut hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be caught")?;
    let mut resized = signal(SignalKind::window_change()).context("SIGWINCH cannot be caught")?;
    let mut screen = Screen::enter().context("the terminal cannot be used")?;
    let mut keys = screen.keys().context("keys cannot be read")?;
    let mut keyboard = true;
    let mut trouble: Option<String> = None;
    let mut next = started + plan.every;
    loop {
        let (width, height) = screen.size();
        let models = plan.models.unwrap_or(usize::MAX);
        let room = Room { width, height: Some(height), models };
        screen.draw(&plan.lines(&history, trouble.as_deref(), room)).context("cannot be shown")?;
        let end = plan.over.map_or(next, |over| (started + over).min(next));
        tokio::select! {
            () = sleep_until(end.into()) => {
                if plan.over.is_some_and(|over| started.elapsed() >= over) {
                    return Ok(());
                }
                trouble = match plan.look().await {
                    Ok(status) => {
                        history.push(started.elapsed(), status);
                        None
                    }
                    Err(error) => Some(error.to_string()),
                };
                // A look that took long does not call for others at once.
                next = (next + plan.every).max(Instant::now());
            }
            key = keys.recv(), if keyboard => match key {
                Some(b'q' | b'Q') => return Ok(()),
                Some(_) => {}
                None => keyboard = false,
            },
            _ = resized.recv() => {}
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
        }
    }
}
