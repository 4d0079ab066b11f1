//! Text scenarios: a script of what happens, a line, and the timeline that must follow.
//!
//! `UPDATE=1 cargo test --test scenarios` writes the timelines anew; read the difference before you
//! commit. One unit of time is a millisecond. Executors finish when planned. At one moment first
//! the script's own events happen, in its order, then executors are done, then the dispatcher wakes
//! by itself.
//!
//! ```text
//! # A remark.
//! policy deferred-prefix
//! network ctrl 1 data 0.5 resp 2
//! model m0 slo 12 alpha 1 beta 5            l(b) = b + 5 on executors of class 0
//! model m1 slo 12 alpha 1 beta 5 alpha 2 beta 5            the second profile is for class 1
//! executors 3                               or: executors 3 class 1
//! arrivals m0 uniform 0.75 from 0 count 40 skip 13..15     requests r1, r2, ...
//! at 0 arrive r1 m0                         or: at 0 arrive r1 m0 deadline 9
//! at 1 cancel r1
//! at 1 fail x0                              also: leave x0, join x0, join x0 class 1
//! at 1 remove m0                            also: add m0 slo 12 alpha 1 beta 5
//! run until 60
//! ----
//! 2.25 run x0 m0 [1 2 3 4] until 11.25
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Profile, RequestId, Span, Time};
use fermata_dispatch::{Action, Actions, Dispatch, DropReason, Event, ModelSpec, Network, Policy};

#[test]
fn scenarios() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let (script, expected) = text.split_once("----\n").unwrap_or((&text, ""));
        let timeline = Script::parse(&name, script).play();
        if timeline == expected {
            continue;
        }
        if update {
            std::fs::write(&file, format!("{script}----\n{timeline}")).unwrap();
        } else {
            wrong.push(format!("== {name}\n-- expected\n{expected}-- happened\n{timeline}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\nUPDATE=1 accepts what happened\n", wrong.join("\n"));
}

struct Script {
    policy: Policy,
    network: Network,
    /// By time, those of one moment in the order of the script.
    events: BTreeMap<(Time, usize), Event>,
    end: Time,
}

impl Script {
    fn parse(name: &str, text: &str) -> Self {
        let mut script = Self {
            policy: Policy::FERMATA,
            network: Network::default(),
            events: BTreeMap::new(),
            end: Time::NEVER,
        };
        let mut executors = 0;
        // What a request was for, so that `cancel` needs no more than its name.
        let mut requests = BTreeMap::new();
        let mut slos = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let place = format!("{name}:{number}: {line}");
            let mut words = Words { list: line.split_whitespace().collect(), place };
            if words.list.is_empty() {
                continue;
            }
            let mut at = Time::START;
            if words.take("at") {
                at = words.time();
            }
            match words.word() {
                "policy" => script.policy = words.policy(),
                "network" => {
                    script.network = Network {
                        ctrl: words.span_after("ctrl"),
                        data: words.span_after("data"),
                        resp: words.span_after("resp"),
                    };
                }
                "model" | "add" => {
                    let model = ModelId(words.id('m') as u32);
                    let spec = words.spec();
                    slos.insert(model, spec.slo);
                    script.push(at, Event::AddModel { model, spec: Arc::new(spec), gap: None });
                }
                "executors" => {
                    let count: u32 = words.number() as u32;
                    let class = words.class();
                    for _ in 0..count {
                        let executor = ExecutorId(executors);
                        executors += 1;
                        script.push(at, Event::Join { executor, class });
                    }
                }
                "arrivals" => {
                    let model = ModelId(words.id('m') as u32);
                    words.expect("uniform");
                    let gap = words.span();
                    let from = Time::START + words.span_after("from");
                    words.expect("count");
                    let count = words.number() as u64;
                    let skip = if words.take("skip") { words.range() } else { 0..=0 };
                    let first = if words.take("first") { words.number() as u64 } else { 1 };
                    for id in (first..first + count).filter(|id| !skip.contains(id)) {
                        let now = from + gap * (id - first);
                        let (request, deadline) = (RequestId(id), now + slos[&model]);
                        requests.insert(request, (model, deadline));
                        script
                            .push(now, Event::Arrive { model, request, deadline, kind: KindId(0) });
                    }
                }
                "arrive" => {
                    let request = RequestId(words.id('r'));
                    let model = ModelId(words.id('m') as u32);
                    let slo = slos.get(&model).copied().unwrap_or_default();
                    let deadline = if words.take("deadline") { words.time() } else { at + slo };
                    requests.insert(request, (model, deadline));
                    script.push(at, Event::Arrive { model, request, deadline, kind: KindId(0) });
                }
                "cancel" => {
                    let request = RequestId(words.id('r'));
                    let (model, deadline) = requests[&request];
                    script.push(at, Event::Cancel { model, request, deadline });
                }
                "fail" => script.push(at, Event::Fail { executor: words.executor() }),
                "leave" => script.push(at, Event::Leave { executor: words.executor() }),
                "join" => {
                    let executor = words.executor();
                    let class = words.class();
                    script.push(at, Event::Join { executor, class });
                }
                "remove" => {
                    let model = ModelId(words.id('m') as u32);
                    script.push(at, Event::RemoveModel { model });
                }
                "run" => {
                    words.expect("until");
                    script.end = words.time();
                }
                _ => words.fail("unknown command"),
            }
            if !words.list.is_empty() {
                words.fail("too many words");
            }
        }
        script
    }

    fn push(&mut self, at: Time, event: Event) {
        self.events.insert((at, self.events.len()), event);
    }

    fn play(mut self) -> String {
        let mut dispatcher = self.policy.dispatcher(self.network);
        let mut actions = Actions::default();
        // When the batches of each executor are done, in order.
        let mut running: BTreeMap<ExecutorId, Vec<Time>> = BTreeMap::new();
        let mut timeline = String::new();
        loop {
            let scripted = self.events.first_key_value().map_or(Time::NEVER, |(&(at, _), _)| at);
            let done = running.iter().filter_map(|(&id, ends)| Some((*ends.first()?, id))).min();
            let wakeup = dispatcher.next_wakeup();
            let done_at = done.map_or(Time::NEVER, |(at, _)| at);
            let now = scripted.min(done_at).min(wakeup);
            if now == Time::NEVER || now > self.end {
                return timeline;
            }
            let event = if now == scripted {
                self.events.pop_first().expect("the first was seen").1
            } else if let Some((_, executor)) = done.filter(|_| now == done_at) {
                running.get_mut(&executor).expect("it runs").remove(0);
                Event::Done { executor }
            } else {
                Event::Wakeup
            };
            if let Event::Fail { executor } = event {
                running.remove(&executor);
            }
            dispatcher.handle(now, event, &mut actions);
            for action in &actions.list {
                let _ = write!(timeline, "{} ", ms(now));
                match *action {
                    Action::Drop { model, request, reason } => {
                        let reason = match reason {
                            DropReason::Cancelled => "cancelled",
                            DropReason::Late => "late",
                            DropReason::NotLoaded => "not loaded",
                            DropReason::Overload => "overload",
                        };
                        let _ = writeln!(timeline, "drop {} {model}: {reason}", request.id);
                    }
                    Action::Limit { model, by } => {
                        let _ = writeln!(timeline, "limit {model} by {by}");
                    }
                    Action::Preempt { executor } => {
                        running.entry(executor).or_default().remove(0);
                        let _ = writeln!(timeline, "preempt {executor}");
                    }
                    Action::Run { executor, model, start, latency, first, size } => {
                        let end = start + latency;
                        running.entry(executor).or_default().push(end);
                        let batch = actions.batch(first, size);
                        let ids: Vec<_> = batch.iter().map(|r| r.id.0.to_string()).collect();
                        let _ = write!(timeline, "run {executor} {model} [{}]", ids.join(" "));
                        if start != now {
                            let _ = write!(timeline, " from {}", ms(start));
                        }
                        let _ = writeln!(timeline, " until {}", ms(end));
                    }
                }
            }
            actions.clear();
        }
    }
}

/// Milliseconds without zeros that say nothing.
fn ms(time: Time) -> String {
    let text = format!("{}.{:06}", time.0 / 1_000_000, time.0 % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The words of a line that were not read yet.
struct Words<'a> {
    list: Vec<&'a str>,
    place: String,
}

impl<'a> Words<'a> {
    fn fail(&self, what: &str) -> ! {
        panic!("{what} in {}", self.place);
    }

    fn policy(&mut self) -> Policy {
        self.word().parse().unwrap_or_else(|_| self.fail("unknown policy"))
    }

    fn word(&mut self) -> &'a str {
        if self.list.is_empty() {
            self.fail("too few words");
        }
        self.list.remove(0)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.list.first() == Some(&word);
        if found {
            self.list.remove(0);
        }
        found
    }

    fn expect(&mut self, word: &str) {
        if !self.take(word) {
            self.fail(&format!("'{word}' expected"));
        }
    }

    fn number(&mut self) -> f64 {
        self.word().parse().unwrap_or_else(|_| self.fail("a number expected"))
    }

    fn span(&mut self) -> Span {
        Span::from_ms(self.number())
    }

    fn span_after(&mut self, word: &str) -> Span {
        self.expect(word);
        self.span()
    }

    fn time(&mut self) -> Time {
        Time::from_ms(self.number())
    }

    fn id(&mut self, letter: char) -> u64 {
        let id = self.word().strip_prefix(letter).and_then(|digits| digits.parse().ok());
        id.unwrap_or_else(|| self.fail(&format!("'{letter}' and a number expected")))
    }

    fn executor(&mut self) -> ExecutorId {
        ExecutorId(self.id('x') as u32)
    }

    fn class(&mut self) -> ClassId {
        ClassId(if self.take("class") { self.number() as u16 } else { 0 })
    }

    fn range(&mut self) -> std::ops::RangeInclusive<u64> {
        let ends = self.word().split_once("..");
        match ends.map(|(from, to)| (from.parse(), to.parse())) {
            Some((Ok(from), Ok(to))) => from..=to,
            _ => self.fail("a range expected"),
        }
    }

    fn spec(&mut self) -> ModelSpec {
        let slo = self.span_after("slo");
        let mut profiles = Vec::new();
        while !self.list.is_empty() {
            profiles.push(if self.take("none") {
                None
            } else {
                let (alpha, beta) = (self.span_after("alpha"), self.span_after("beta"));
                let profile = Profile::linear(alpha, beta, slo);
                Some(Arc::new(profile.unwrap_or_else(|_| self.fail("profile"))))
            });
        }
        ModelSpec::new(slo, profiles)
    }
}
