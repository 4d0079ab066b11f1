//! The graph of a query as calls in series and in parallel.

use fermata_core::Span;

use super::Query;

/// A query taken apart.
#[derive(Debug)]
pub(super) struct Shape {
    /// First the calls, in the order of the stages; then each part after the two that it is made
    /// of; last the whole query.
    pub(super) parts: Vec<Part>,
}

/// A part of a query.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The call of a stage.
    Call(usize),
    /// One part after the other.
    Series(usize, usize),
    /// Two parts side by side: both must be done.
    Parallel(usize, usize),
}

/// A way between two points of the graph, and what is on it.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    part: Option<usize>,
}

impl Shape {
    /// Takes a query apart; `None`, if its graph is not made of series and parallels.
    ///
    /// Stages and dependencies are edges between points. Two edges in a row are one, where nothing
    /// else meets between them; two edges side by side are one. What is left of a series-parallel
    /// graph in the end is one edge.
    pub(super) fn of(query: &Query) -> Option<Self> {
        let mut shape = Self { parts: Vec::with_capacity(2 * query.stages.len()) };
        let mut edges = shape.edges(query);
        let points = edges.iter().map(|edge| edge.to.max(edge.from) + 1).max()?;
        loop {
            let mut changed = false;
            for point in 2..points {
                changed |= shape.join_at(&mut edges, point);
            }
            if !changed {
                break;
            }
        }
        match edges[..] {
            [Edge { part: Some(whole), .. }] => {
                // The last one that was made, since all others are in it.
                debug_assert_eq!(whole + 1, shape.parts.len(), "the whole query comes last");
                Some(shape)
            }
            _ => None,
        }
    }

    /// Where a query starts, and where it ends.
    const START: usize = 0;
    const END: usize = 1;

    fn edges(&mut self, query: &Query) -> Vec<Edge> {
        let stages = &query.stages;
        let (starts, ends) = (|stage: usize| 2 + 2 * stage, |stage: usize| 3 + 2 * stage);
        let mut edges = Vec::with_capacity(4 * stages.len());
        let mut points = 2 + 2 * stages.len();
        let mut waited_for = vec![false; stages.len()];
        for (at, stage) in stages.iter().enumerate() {
            self.parts.push(Part::Call(at));
            edges.push(Edge { from: starts(at), to: ends(at), part: Some(at) });
            stage.after.iter().for_each(|&before| waited_for[before] = true);
            match stage.after[..] {
                [] => edges.push(Edge { from: Self::START, to: starts(at), part: None }),
                [before] => edges.push(Edge { from: ends(before), to: starts(at), part: None }),
                // Stages that wait for the same ones meet them at one point.
                _ => match stages[..at].iter().position(|other| other.after == stage.after) {
                    Some(other) => {
                        let to = starts(other);
                        let meeting =
                            edges.iter().find(|edge| edge.to == to && edge.part.is_none());
                        let meeting = meeting.expect("the first to wait has made it").from;
                        edges.push(Edge { from: meeting, to: starts(at), part: None });
                    }
                    None => {
                        let wait = |&before| Edge { from: ends(before), to: points, part: None };
                        edges.extend(stage.after.iter().map(wait));
                        edges.push(Edge { from: points, to: starts(at), part: None });
                        points += 1;
                    }
                },
            }
        }
        for at in (0..stages.len()).filter(|&at| !waited_for[at]) {
            edges.push(Edge { from: ends(at), to: Self::END, part: None });
        }
        edges
    }

    /// Makes one edge of the two at a point, and of that and others beside it; `false`, if there
    /// are not two, one in and one out.
    fn join_at(&mut self, edges: &mut Vec<Edge>, point: usize) -> bool {
        let (mut before, mut after) = (None, None);
        for (at, edge) in edges.iter().enumerate() {
            if edge.to == point && before.replace(at).is_some() {
                return false;
            }
            if edge.from == point && after.replace(at).is_some() {
                return false;
            }
        }
        let (Some(before), Some(after)) = (before, after) else { return false };
        let (first, second) = (edges[before], edges[after]);
        let part = self.both(first.part, second.part, Part::Series);
        let mut joined = Edge { from: first.from, to: second.to, part };
        edges.swap_remove(before.max(after));
        edges.swap_remove(before.min(after));
        while let Some(beside) =
            edges.iter().position(|edge| (edge.from, edge.to) == (joined.from, joined.to))
        {
            let other = edges.swap_remove(beside);
            joined.part = self.both(other.part, joined.part, Part::Parallel);
        }
        edges.push(joined);
        true
    }

    fn both(
        &mut self,
        one: Option<usize>,
        other: Option<usize>,
        made: fn(usize, usize) -> Part,
    ) -> Option<usize> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        self.parts.push(made(one, other));
        Some(self.parts.len() - 1)
    }

    /// How long each part may take, if all others take these times (by stage).
    pub(super) fn limits(&self, times: &[Span], slo: Span) -> Vec<Span> {
        let lengths = self.lengths(times);
        let mut limits = vec![slo; self.parts.len()];
        for at in (0..self.parts.len()).rev() {
            match self.parts[at] {
                Part::Call(_) => {}
                Part::Series(first, second) => {
                    limits[first] = limits[at] - lengths[second];
                    limits[second] = limits[at] - lengths[first];
                }
                Part::Parallel(one, other) => {
                    (limits[one], limits[other]) = (limits[at], limits[at]);
                }
            }
        }
        limits
    }

    /// How long each part takes, if stages take these times.
    pub(super) fn lengths(&self, times: &[Span]) -> Vec<Span> {
        let mut lengths = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            lengths.push(match *part {
                Part::Call(stage) => times[stage],
                Part::Series(first, second) => lengths[first] + lengths[second],
                Part::Parallel(one, other) => Span::max(lengths[one], lengths[other]),
            });
        }
        lengths
    }
}

/// For each stage, the last one that every way to it passes; `None`, if there is none.
pub(super) fn last_passed(query: &Query) -> Vec<Option<usize>> {
    // Places are counted from one, and zero is the query itself, which every way passes.
    let mut passed: Vec<usize> = vec![0];
    for stage in &query.stages {
        let mut ways = stage.after.iter().map(|before| before + 1);
        let first = ways.next().unwrap_or(0);
        let last = ways.fold(first, |mut one, mut other| {
            while one != other {
                let later = if one > other { &mut one } else { &mut other };
                *later = passed[*later];
            }
            one
        });
        passed.push(last);
    }
    passed.into_iter().skip(1).map(|last| last.checked_sub(1)).collect()
}
