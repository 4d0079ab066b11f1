//! When which model's next request is due: all models' arrivals in one order, dealt out to the
//! threads.

use fermata_core::Time;
use fermata_workload::{Gaps, Rate, Stream};

use super::plan::{ModelPlan, Spread};

/// One thread's part of the load.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    streams: Vec<(Time, Stream)>,
    /// Every `step`th arrival is this thread's.
    step: usize,
    skip: usize,
}

impl Schedule {
    /// The part of thread number `thread` of `threads`. Each draws all arrivals, so that together
    /// they send exactly what one would.
    pub(super) fn new(
        models: &[ModelPlan],
        spread: &Spread,
        scale: f64,
        seed: u64,
        thread: usize,
        threads: usize,
    ) -> Self {
        let stream = |(number, model): (u64, &ModelPlan)| {
            let gaps = match spread {
                Spread::Process(process) => Gaps::new(*process, seed, number),
                Spread::Recorded(table) => Gaps::from_table(table.clone()),
            };
            let mut stream = Stream::new(gaps, &Rate::Constant(model.rate * scale));
            (stream.next_arrival(), stream)
        };
        Self { streams: (0..).zip(models).map(stream).collect(), step: threads, skip: thread }
    }

    /// The next request of this thread: when, since the start, and of which model.
    pub(super) fn next(&mut self) -> (Time, usize) {
        for _ in 0..self.skip {
            self.draw();
        }
        self.skip = self.step - 1;
        self.draw()
    }

    fn draw(&mut self) -> (Time, usize) {
        let earliest = (0..self.streams.len()).min_by_key(|&model| self.streams[model].0);
        let model = earliest.expect("there is a model");
        let (due, stream) = &mut self.streams[model];
        (std::mem::replace(due, stream.next_arrival()), model)
    }
}

#[cfg(test)]
mod tests {
    use fermata_workload::Process;

    use super::*;

    #[test]
    fn threads_together_send_what_one_would() {
        let model = |rate| ModelPlan { name: String::new(), rate, slo: None };
        let models = [model(100.0), model(300.0)];
        let schedule = |thread, threads| {
            Schedule::new(&models, &Spread::Process(Process::Gamma(0.3)), 2.0, 7, thread, threads)
        };
        let mut alone = schedule(0, 1);
        let mut parts = [schedule(0, 3), schedule(1, 3), schedule(2, 3)];
        let mut last = (Time::START, 0);
        let mut counts = [0; 2];
        for at in 0..4000 {
            let next = alone.next();
            assert!(next.0 >= last.0);
            assert_eq!(parts[at % 3].next(), next);
            counts[next.1] += 1;
            last = next;
        }
        assert!((2.5..3.5).contains(&(f64::from(counts[1]) / f64::from(counts[0]))));
        assert!((4.0..6.0).contains(&last.0.as_secs()));
    }
}
