//! Events and actions as words, and back.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Profile, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, DropReason, Event, ModelSpec};

use super::spread;

/// Appends an event as words.
pub(crate) fn write_event(event: &Event, name: &str, out: &mut String) {
    let done = match event {
        Event::AddModel { model, spec, .. } => {
            let _ = write!(out, "add {model} ");
            write_spec(spec, out);
            write!(out, " {name}")
        }
        Event::Arrive { model, request, deadline, kind } => {
            let _ = write!(out, "arrive {model} {request} {}", deadline.0);
            if kind == &KindId::default() { Ok(()) } else { write!(out, " {kind}") }
        }
        Event::Cancel { model, request, deadline } => {
            write!(out, "cancel {model} {request} {}", deadline.0)
        }
        Event::Done { executor } => write!(out, "done {executor}"),
        Event::Fail { executor } => write!(out, "fail {executor}"),
        Event::Join { executor, class } => write!(out, "join {executor} {class}"),
        Event::Late { by } => write!(out, "late {}", by.0),
        Event::Leave { executor } => write!(out, "leave {executor}"),
        Event::Profile { model, spec } => {
            let _ = write!(out, "profile {model} ");
            write_spec(spec, out);
            Ok(())
        }
        Event::RemoveModel { model } => write!(out, "remove {model}"),
        Event::Wakeup => out.write_str("wake"),
    };
    done.expect("a string takes everything");
}

/// What a dispatcher asked for in the words of `Entry::Action`, a line each.
pub(crate) fn words(actions: &Actions) -> Vec<String> {
    let mut text = String::new();
    write_actions(actions, &mut text);
    text.lines().map(|line| line.trim_start_matches("> ").to_owned()).collect()
}

/// Appends every action as a line of its own.
pub(crate) fn write_actions(actions: &Actions, out: &mut String) {
    for action in &actions.list {
        let done = match *action {
            Action::Drop { model, request, reason } => {
                writeln!(out, "> drop {model} {} {}", request.id, word(reason))
            }
            Action::Preempt { executor } => writeln!(out, "> preempt {executor}"),
            // It asks for nothing, and so there is nothing to replay.
            Action::Limit { .. } => continue,
            Action::Run { executor, model, start, latency, first, size } => {
                let _ = write!(out, "> run {executor} {model} {} {}", start.0, latency.0);
                for request in actions.batch(first, size) {
                    let _ = write!(out, " {}", request.id);
                }
                writeln!(out)
            }
        };
        done.expect("a string takes everything");
    }
}

/// Reads an event, and the name that comes with a model; the error says what was expected.
pub(crate) fn read_event(text: &str) -> Result<(Event, Option<&str>), String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut words = Words { rest };
    let event = match word {
        "add" => {
            let (model, spec) = (ModelId(words.id('m')?), words.spec()?);
            let name = words.rest;
            return Ok((Event::AddModel { model, spec, gap: None }, Some(name)));
        }
        "arrive" => Event::Arrive {
            model: ModelId(words.id('m')?),
            request: RequestId(words.id('r')?),
            deadline: Time(words.number()?),
            kind: if words.rest.is_empty() { KindId::default() } else { KindId(words.id('k')?) },
        },
        "cancel" => Event::Cancel {
            model: ModelId(words.id('m')?),
            request: RequestId(words.id('r')?),
            deadline: Time(words.number()?),
        },
        "done" => Event::Done { executor: ExecutorId(words.id('x')?) },
        "fail" => Event::Fail { executor: ExecutorId(words.id('x')?) },
        "join" => {
            Event::Join { executor: ExecutorId(words.id('x')?), class: ClassId(words.id('c')?) }
        }
        "late" => Event::Late { by: Span(words.number()?) },
        "leave" => Event::Leave { executor: ExecutorId(words.id('x')?) },
        "profile" => Event::Profile { model: ModelId(words.id('m')?), spec: words.spec()? },
        "remove" => Event::RemoveModel { model: ModelId(words.id('m')?) },
        "wake" => Event::Wakeup,
        _ => return Err(format!("unknown event '{word}'")),
    };
    if words.rest.is_empty() { Ok((event, None)) } else { Err("too many words".to_owned()) }
}

/// What a recorded action did to executors and requests.
#[derive(Debug, PartialEq)]
pub(crate) enum Deed {
    Drop { model: ModelId, request: RequestId },
    Preempt { executor: ExecutorId },
    Run { executor: ExecutorId, model: ModelId, requests: Vec<RequestId> },
}

/// Reads an action, without its `> `; the error says what was expected.
pub(crate) fn read_action(text: &str) -> Result<Deed, String> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut words = Words { rest };
    let deed = match word {
        "drop" => {
            let (model, request) = (ModelId(words.id('m')?), RequestId(words.id('r')?));
            words.next(); // Why is of no consequence.
            Deed::Drop { model, request }
        }
        "preempt" => Deed::Preempt { executor: ExecutorId(words.id('x')?) },
        "run" => {
            let (executor, model) = (ExecutorId(words.id('x')?), ModelId(words.id('m')?));
            let (_start, _latency) = (words.number()?, words.number()?);
            let mut requests = vec![RequestId(words.id('r')?)];
            while !words.rest.is_empty() {
                requests.push(RequestId(words.id('r')?));
            }
            Deed::Run { executor, model, requests }
        }
        _ => return Err(format!("unknown action '{word}'")),
    };
    if words.rest.is_empty() { Ok(deed) } else { Err("too many words".to_owned()) }
}

fn word(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Cancelled => "cancelled",
        DropReason::Late => "late",
        DropReason::NotLoaded => "not_loaded",
        DropReason::Overload => "overload",
    }
}

/// `SLO PROFILE`; `SLO+DATA` where inputs take long on the way, and `PROFILE/PROFILE` where there
/// are several classes.
fn write_spec(spec: &ModelSpec, out: &mut String) {
    let _ = write!(out, "{}", spec.slo.0);
    if spec.data > Span::ZERO {
        let _ = write!(out, "+{}", spec.data.0);
    }
    for (class, profile) in spec.profiles.iter().enumerate() {
        out.push(if class == 0 { ' ' } else { '/' });
        let Some(profile) = profile else {
            out.push('-');
            continue;
        };
        if let Some(spread) = profile.spread() {
            spread::write(spread, out);
            continue;
        }
        for size in 1..=profile.max_batch() {
            let comma = if size > 1 { "," } else { "" };
            let _ = write!(out, "{comma}{}", profile.latency(size).0);
        }
    }
}

struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> &'a str {
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        self.rest = rest;
        word
    }

    fn number(&mut self) -> Result<u64, String> {
        let word = self.next();
        word.parse().map_err(|_| format!("expected a number, found '{word}'"))
    }

    fn id<N: FromStr>(&mut self, letter: char) -> Result<N, String> {
        let word = self.next();
        let number = word.strip_prefix(letter).and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| format!("expected {letter} and a number, found '{word}'"))
    }

    /// The SLO, what an input takes on the way, and the profile on each class.
    fn spec(&mut self) -> Result<Arc<ModelSpec>, String> {
        let word = self.next();
        let (slo, data) = word.split_once('+').unwrap_or((word, "0"));
        let number = |part: &str| {
            part.parse().map(Span).map_err(|_| format!("expected a number, found '{word}'"))
        };
        let (slo, data) = (number(slo)?, number(data)?);
        let profiles = self.next().split('/').map(read_profile).collect::<Result<_, _>>()?;
        Ok(Arc::new(ModelSpec { slo, profiles, data }))
    }
}

/// The profile on one class; `None` where the model cannot run.
fn read_profile(table: &str) -> Result<Option<Arc<Profile>>, String> {
    if table == "-" {
        return Ok(None);
    }
    if let Some(spread) = spread::read(table) {
        return Ok(Some(Arc::new(Profile::spread_out(Arc::new(spread?)))));
    }
    let latencies: Result<Vec<Span>, _> =
        table.split(',').map(|number| number.parse().map(Span)).collect();
    let latencies = latencies.map_err(|_| format!("'{table}' is not a list of latencies"))?;
    let profile = Profile::from_table(latencies)
        .map_err(|error| format!("'{table}' is not a profile: {error}"))?;
    Ok(Some(Arc::new(profile)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let ms = Span::from_ms;
        let spec = || {
            Arc::new(ModelSpec::uniform(
                ms(25.0),
                Profile::linear(ms(1.0), ms(5.0), ms(25.0)).unwrap(),
            ))
        };
        let spread = || Arc::new(ModelSpec::uniform(ms(25.0), spread::sample()));
        // Shares of a GPU: several classes, on one of which it cannot run.
        let shares = || {
            let profiles = vec![spec().profiles[0].clone(), None, spread().profiles[0].clone()];
            Arc::new(ModelSpec { data: Span(21_500), ..ModelSpec::new(ms(10.0), profiles) })
        };
        let (model, request, deadline) = (ModelId(3), RequestId(12), Time(99));
        let executor = ExecutorId(7);
        let events = [
            Event::AddModel { model, spec: spec(), gap: None },
            Event::AddModel { model, spec: spread(), gap: None },
            Event::AddModel { model, spec: shares(), gap: None },
            Event::Arrive { model, request, deadline, kind: KindId(0) },
            Event::Arrive { model, request, deadline, kind: KindId(3) },
            Event::Cancel { model, request, deadline },
            Event::Done { executor },
            Event::Fail { executor },
            Event::Join { executor, class: ClassId(0) },
            Event::Late { by: Span(5) },
            Event::Leave { executor },
            Event::Profile { model, spec: spec() },
            Event::Profile { model, spec: spread() },
            Event::Profile { model, spec: shares() },
            Event::RemoveModel { model },
            Event::Wakeup,
        ];
        for event in events {
            let mut text = String::new();
            write_event(&event, "a name", &mut text);
            let name = matches!(event, Event::AddModel { .. }).then_some("a name");
            assert_eq!(read_event(&text), Ok((event, name)));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(read_event("sing x0"), Err("unknown event 'sing'".to_owned()));
        assert_eq!(read_event("done 0"), Err("expected x and a number, found '0'".to_owned()));
        assert_eq!(read_event("wake up"), Err("too many words".to_owned()));
        assert!(read_event("add m0 5 1,,2 name").unwrap_err().contains("latencies"));
    }
}
