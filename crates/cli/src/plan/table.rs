//! A plan for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use fermata_chart::grouped;
use fermata_files::Table;

use super::report::{ConfirmedReport, MemberReport, MovesReport, NodeReport, PoolReport, Report};

/// More rows than this are only in the JSON.
const ROWS_SHOWN: usize = 150;

/// The report as text.
pub(super) fn text(file: &Path, report: &Report) -> String {
    let mut text = format!(
        "{}: {}, {} requests a second, method {}\n\n",
        file.display(),
        count(report.demands, "demand"),
        grouped(report.rate, 0),
        report.method
    );
    text.push_str(&totals(report));
    if !report.infeasible.is_empty() {
        text.push_str("\nnot met:\n");
        for each in &report.infeasible {
            let _ = writeln!(text, "  {}: {}", each.model, each.text);
        }
    }
    if !report.pools.is_empty() {
        text.push('\n');
        text.push_str(&pools(report));
    }
    text
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        several => format!("{} {what}s", grouped(several as f64, 0)),
    }
}

fn totals(report: &Report) -> String {
    let mut rows = vec![("GPUs", gpus(report))];
    if let Some(cost) = report.cost {
        let part = |kind: &super::report::KindReport| {
            format!("{} {} at {:.2}", kind.gpus, kind.name, kind.price.unwrap_or_default())
        };
        let parts: Vec<String> = report.kinds.iter().map(part).collect();
        rows.push(("cost an hour", format!("{}: {}", grouped(cost, 2), parts.join(", "))));
    }
    for query in &report.queries {
        let part = |node: &NodeReport| format!("{} {:.1}", node.model, node.slo_ms);
        let parts: Vec<String> = query.nodes.iter().map(part).collect();
        let slo = grouped(query.slo_ms, 1);
        rows.push(("query", format!("{}: {slo} ms split in {}", query.name, parts.join(", "))));
    }
    if let Some(confirmed) = &report.confirmed {
        rows.push(("confirmed", confirmation(confirmed)));
        rows.push(("simulated", simulation(confirmed)));
    }
    if let Some(moves) = &report.moves {
        rows.extend(moved(moves).into_iter().map(|line| ("previous plan", line)));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    let mut last = "";
    for (name, value) in rows {
        // What has several lines is named once.
        let shown = if name == last { "" } else { name };
        let _ = writeln!(text, "  {shown:width$}  {value}");
        last = name;
    }
    text
}

fn gpus(report: &Report) -> String {
    let Report { gpus, lower_bound, .. } = *report;
    match (gpus, lower_bound) {
        (gpus, 0) => gpus.to_string(),
        // What is not met is part of the bound, but not of the plan.
        (gpus, bound) if gpus < bound => {
            format!("{gpus}; all that was asked for needs at least {bound}")
        }
        (gpus, bound) if gpus == bound => format!("{gpus}, the fewest there can be"),
        // The bound may be that of another kind, of which fewer are enough for more money.
        (gpus, bound) if report.kinds.len() > 1 => {
            format!("{gpus}; at least {bound} are needed")
        }
        (gpus, bound) => {
            let above = 100.0 * (gpus as f64 / bound as f64 - 1.0);
            format!("{gpus}; at least {bound} are needed, this is {above:.1} % above")
        }
    }
}

fn confirmation(confirmed: &ConfirmedReport) -> String {
    let [first, second] = confirmed.worst_bad_rates.map(percent);
    let yes = if confirmed.in_time { "yes" } else { "no" };
    format!("{yes}: of the worst model's requests {first} are bad, {second} with another seed")
}

fn simulation(confirmed: &ConfirmedReport) -> String {
    let [seed, next] = confirmed.seeds;
    let requests = grouped(confirmed.requests as f64, 0);
    let estimate = count(confirmed.estimate, "GPU");
    format!(
        "{requests} requests under policy {}, seeds {seed} and {next}; estimated before: \
         {estimate}",
        confirmed.policy
    )
}

/// What has to be done, a line for each thing.
fn moved(moves: &MovesReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !moves.ignored.is_empty() {
        lines.push(format!("not in the file, and ignored: {}", moves.ignored.join(", ")));
    }
    if moves.is_empty {
        lines.push("nothing moves".to_owned());
        return lines;
    }
    let (added, released) = (moves.gpus_added, moves.gpus_released);
    lines.push(format!(
        "{} before, {added} added, {released} released",
        count(moves.gpus_before, "GPU")
    ));
    for (what, models) in [("load", &moves.loads), ("unload", &moves.unloads)] {
        if !models.is_empty() {
            lines.push(format!("{what} {}", listed(models)));
        }
    }
    lines
}

/// Some models, with the number of GPUs where it is not one.
fn listed(models: &BTreeMap<String, usize>) -> String {
    const SHOWN: usize = 12;
    let one = |(name, &gpus): (&String, &usize)| match gpus {
        1 => name.clone(),
        several => format!("{name} on {several} GPUs"),
    };
    let mut parts: Vec<String> = models.iter().take(SHOWN).map(one).collect();
    if models.len() > SHOWN {
        parts.push(format!("{} more", models.len() - SHOWN));
    }
    parts.join(", ")
}

/// Pools that differ in nothing but their GPUs are one.
fn fold(pools: &[PoolReport]) -> Vec<PoolReport> {
    let mut folded: Vec<PoolReport> = Vec::new();
    for pool in pools {
        let same = |other: &&mut PoolReport| {
            let plain = |members: &[MemberReport]| -> Vec<MemberReport> {
                members.iter().map(|each| MemberReport { seen: None, ..each.clone() }).collect()
            };
            pool.round_ms.is_some()
                && (&other.kind, other.share, other.round_ms)
                    == (&pool.kind, pool.share, pool.round_ms)
                && plain(&other.members) == plain(&pool.members)
        };
        match folded.iter_mut().find(same) {
            Some(other) => {
                other.gpus.extend(&pool.gpus);
                // The worst of them is shown.
                for (shown, member) in other.members.iter_mut().zip(&pool.members) {
                    let bad = |member: &MemberReport| member.seen.map(|seen| seen.bad_rates[0]);
                    if bad(member) > bad(shown) {
                        shown.seen = member.seen;
                    }
                }
            }
            None => folded.push(pool.clone()),
        }
    }
    folded
}

fn pools(report: &Report) -> String {
    let several = report.kinds.len() > 1;
    let shares = report.pools.iter().any(|pool| pool.share != 100);
    let tried = report.confirmed.is_some();
    let head = ["GPU"]
        .into_iter()
        .chain(several.then_some("kind"))
        .chain(shares.then_some("share"))
        .chain(["every ms", "model", "rps", "batch", "busy", "latency ms", "SLO ms"])
        .chain(tried.then_some(["p99 ms", "bad"]).into_iter().flatten());
    let mut table = Table::new(head).left("model");
    let (mut rows, mut left) = (0, 0);
    for pool in fold(&report.pools) {
        if rows > 0 && rows + pool.members.len() > ROWS_SHOWN {
            left += pool.gpus.len();
            continue;
        }
        rows += pool.members.len();
        for (at, member) in pool.members.iter().enumerate() {
            // What is the same for all members is said once.
            let once = |text: String| if at == 0 { text } else { String::new() };
            let every = pool.round_ms.map_or("pool".to_owned(), |round| format!("{round:.1}"));
            let seen = tried.then(|| match &member.seen {
                Some(seen) => [format!("{:.1}", seen.p99_ms), percent(seen.bad_rates[0])],
                None => ["-", "-"].map(str::to_owned),
            });
            let cells = [once(ranges(&pool.gpus))]
                .into_iter()
                .chain(several.then(|| once(pool.kind.clone())))
                .chain(shares.then(|| once(format!("{} %", pool.share))))
                .chain([
                    once(every),
                    member.model.clone(),
                    grouped(member.rate, 1),
                    member.batch.to_string(),
                    format!("{:.1} %", 100.0 * member.occupancy),
                    format!("{:.1}", member.latency_ms),
                    grouped(member.slo_ms, 1),
                ])
                .chain(seen.into_iter().flatten());
            table.row(cells);
        }
    }
    let mut text = table.render();
    if left > 0 {
        let _ = writeln!(text, "  and {}: see --json", count(left, "more GPU"));
    }
    text
}

/// `0-3, 7`.
fn ranges(gpus: &[usize]) -> String {
    let mut sorted = gpus.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for gpu in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == gpu => *last = gpu,
            _ => runs.push((gpu, gpu)),
        }
    }
    const SHOWN: usize = 4;
    let run = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let more = if runs.len() > SHOWN { ", ..." } else { "" };
    let shown: Vec<String> = runs.iter().take(SHOWN).map(run).collect();
    shown.join(", ") + more
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn neighbours_are_written_as_ranges() {
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[4, 0, 1, 2, 7]), "0-2, 4, 7");
        assert_eq!(ranges(&[0, 2, 4, 6, 8]), "0, 2, 4, 6, ...");
    }
}
