//! The places where threads meet, under every order in which they can: `make loom`.

#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::VecDeque;
use std::sync::Arc as Shared;

use fermata_core::{ClassId, ExecutorId, KindId, ModelId, Profile, Request, RequestId, Span, Time};
use fermata_dispatch::{
    Action, Actions, Candidate, Hub, ModelSpec, Network, News, PostedCandidate, Promise, Rules,
    Shard, ToHub,
};
use fermata_scheduler::{Bell, Latest, Mailbox};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// All orders with so many switches that nothing forces: more find nothing that these do not, and
/// take hours.
fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

#[test]
fn words_that_belong_together_are_read_together() {
    check(4, || {
        let latest = Arc::new(Latest::<2>::default());
        let writer = thread::spawn({
            let latest = latest.clone();
            move || {
                for word in 1..=2 {
                    latest.write([word, 10 * word]);
                }
            }
        });
        let ([first, second], count) = latest.read();
        assert_eq!((10 * first, first), (second, count));
        writer.join().unwrap();
        assert_eq!(latest.read(), ([2, 20], 2));
    });
}

#[test]
fn what_was_put_last_is_taken_in_the_end() {
    check(3, || {
        let mailbox = Arc::new(Mailbox::<1>::new(65));
        let writer = thread::spawn({
            let mailbox = mailbox.clone();
            move || {
                for (place, word) in [(0, 1), (64, 2), (0, 3)] {
                    mailbox.put(place, [word]);
                }
            }
        });
        let mut last = [0; 65];
        mailbox.drain(|at, [word]| last[at] = word);
        writer.join().unwrap();
        mailbox.drain(|at, [word]| last[at] = word);
        assert_eq!((last[0], last[64]), (3, 2));
    });
}

#[test]
fn nobody_sleeps_through_the_bell() {
    check(4, || {
        let (bell, work) = (Arc::new(Bell::default()), Arc::new(AtomicBool::new(false)));
        let sleeper = thread::spawn({
            let (bell, work) = (bell.clone(), work.clone());
            // A bell that is not heard would leave this asleep for ever, which the checker finds.
            move || {
                while !work.load(Ordering::Acquire) {
                    bell.sleep(None, || work.load(Ordering::Acquire));
                }
            }
        });
        work.store(true, Ordering::Release);
        bell.ring();
        sleeper.join().unwrap();
    });
}

/// A ring of the kind that the links have, of parts that the checker knows.
#[derive(Clone)]
struct Ring<T>(Arc<Mutex<VecDeque<T>>>);

impl<T> Ring<T> {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(VecDeque::new())))
    }

    fn push(&self, item: T) {
        self.0.lock().unwrap().push_back(item);
    }

    fn pop(&self) -> Option<T> {
        self.0.lock().unwrap().pop_front()
    }
}

/// The shard's end of a link.
struct End {
    posts: Arc<Mailbox<2>>,
    news: Ring<News>,
}

impl ToHub for End {
    fn post(&mut self, model: ModelId, _: ClassId, post: PostedCandidate) {
        let words = [u64::from(post.candidate.size), u64::from(post.answered)];
        self.posts.put(model.index(), words);
    }

    fn tell(&mut self, news: News) {
        assert!(!matches!(news, News::Returned { .. }), "promised to who had nothing to send");
        if matches!(news, News::Started { .. }) {
            self.news.push(news);
        }
    }
}

/// A shard with two models and a hub with one executor: a grant meets candidates that have changed,
/// an executor is done before the hub knows that it was started, and still everyone leaves once, no
/// batches overlap, and nobody is promised an executor for requests that have left.
#[test]
fn every_request_leaves_once_and_no_batches_overlap() {
    check(3, || {
        let (news, promises, finished) = (Ring::new(), Ring::new(), Ring::new());
        let posts = Arc::new(Mailbox::new(2));
        let ended = Arc::new(AtomicBool::new(false));
        let shard = thread::spawn({
            let end = End { posts: posts.clone(), news: news.clone() };
            let (promises, finished, ended) = (promises.clone(), finished.clone(), ended.clone());
            move || {
                let left = run_shard(end, &promises, &finished);
                ended.store(true, Ordering::Release);
                assert_eq!(left, [0, 1, 2]);
            }
        });
        run_hub(&posts, &news, &promises, &finished, &ended);
        shard.join().unwrap();
    });
}

const NOW: Time = Time(1);

fn run_shard(mut end: End, promises: &Ring<Promise>, finished: &Ring<ExecutorId>) -> Vec<u64> {
    let ms = Span::from_ms;
    let profile = Profile::linear(ms(1.0), ms(1.0), ms(100.0)).unwrap();
    let spec = Shared::new(ModelSpec::uniform(ms(100.0), profile));
    let mut shard = Shard::new(Rules::EAGER, Network::default(), 0, 1, 1);
    let mut actions = Actions::default();
    for model in [0, 1].map(ModelId) {
        shard.add(NOW, model, &spec, &mut end);
    }
    for (id, model) in [(0, 0), (1, 1), (2, 0)] {
        let request = Request {
            deadline: Time::from_ms(90.0),
            id: RequestId(id),
            arrival: NOW,
            kind: KindId(0),
        };
        shard.arrive(NOW, ModelId(model), request, &mut actions, &mut end);
    }
    let mut left = Vec::new();
    while left.len() < 3 {
        let Some(promise) = promises.pop() else {
            thread::yield_now();
            continue;
        };
        shard.granted(NOW, promise, &mut actions, &mut end);
        for action in &actions.list {
            let &Action::Run { executor, first, size, .. } = action else {
                panic!("nobody is late: {action:?}");
            };
            left.extend(actions.batch(first, size).iter().map(|request| request.id.0));
            // The executor has it, and is done at once.
            finished.push(executor);
        }
        actions.clear();
    }
    left.sort_unstable();
    left
}

fn run_hub(
    posts: &Mailbox<2>,
    news: &Ring<News>,
    promises: &Ring<Promise>,
    finished: &Ring<ExecutorId>,
    ended: &AtomicBool,
) {
    let mut hub = Hub::new(Network::default());
    hub.join(NOW, ExecutorId(0), ClassId(0));
    let mut running = false;
    while !ended.load(Ordering::Acquire) {
        // Read first and heeded last, as `RankSide::turn` does.
        let done = finished.pop();
        while let Some(news) = news.pop() {
            if let News::Started { .. } = news {
                assert!(!running, "two batches at once");
                running = true;
            }
            hub.hear(NOW, news);
        }
        if let Some(executor) = done {
            assert!(running, "done before it was started");
            running = false;
            hub.done(NOW, executor);
        }
        posts.drain(|model, [size, answered]| {
            let candidate = Candidate {
                size: size as u32,
                ready: NOW,
                latest: NOW,
                urgency: NOW,
                due_last: NOW,
            };
            let post = PostedCandidate { candidate, answered: answered as u32 };
            hub.post(NOW, ModelId(model as u32), ClassId(0), &post);
        });
        while let Some(promise) = hub.next_promise(NOW) {
            promises.push(promise);
        }
        thread::yield_now();
    }
}
