//! Figures as lines of text, with tones that a terminal turns into colours. No IO.

use std::fmt::Write;

use fermata_chart::grouped;
use fermata_files::in_one_line;

use super::figures::{Figures, ModelFigures, PoolFigures, Quantile};
use super::status::{Plan, Status};

/// How much room there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) width: usize,
    /// `None` if lines may go on for ever.
    pub(super) height: Option<usize>,
    /// The most models.
    pub(super) models: usize,
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Accent,
    Bad,
    Faint,
    Good,
    Plain,
    Strong,
}

/// A line, in pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Tone, String)>);

/// What stands in a cell.
type Cell = Vec<(Tone, String)>;

/// A column of the models' table.
struct Column {
    head: &'static str,
    /// At least so wide, so that nothing jumps when a number grows.
    width: usize,
    left: bool,
    /// Where there is no room, the highest go first; those of zero stay.
    spare: u8,
}

const COLUMNS: [Column; 13] = [
    Column { head: "model", width: 12, left: true, spare: 0 },
    Column { head: "SLO", width: 6, left: false, spare: 0 },
    Column { head: "req/s", width: 6, left: false, spare: 0 },
    Column { head: "in time", width: 7, left: false, spare: 0 },
    Column { head: "p50 ms", width: 6, left: false, spare: 2 },
    Column { head: "p99 ms", width: 6, left: false, spare: 0 },
    Column { head: "of the SLO", width: BAR + 1, left: true, spare: 3 },
    Column { head: "waiting", width: 7, left: false, spare: 5 },
    Column { head: "batch", width: 5, left: false, spare: 0 },
    Column { head: "sizes", width: SIZES + 6, left: true, spare: 4 },
    Column { head: "limited by", width: 10, left: true, spare: 6 },
    Column { head: "dropped", width: 7, left: false, spare: 1 },
    Column { head: "late", width: 5, left: false, spare: 1 },
];

const GAP: &str = "  ";
const BAR: usize = 12;
const SIZES: usize = 12;
const NAME_MAX: usize = 28;
/// An objective is met if so many requests are in time.
const GOOD: f64 = 0.99;
/// So many reasons why models are not served are told.
const MISSING_MAX: usize = 3;
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Everything, for this much room. `trouble` is what came instead of a last look.
pub(super) fn render(
    url: &str,
    status: &Status,
    figures: &Figures,
    trouble: Option<&str>,
    room: Room,
) -> Vec<Line> {
    let mut lines = vec![title(url, status, figures), Line::default()];
    if let Some(trouble) = trouble {
        lines.insert(1, Line(vec![(Tone::Bad, trouble.to_owned())]));
    }
    let end = pools(&figures.pools, room.width).into_iter();
    let end = end.chain(status.plan.iter().flat_map(plan)).chain(missing(status));
    let end: Vec<Line> = end.collect();
    // The head of the table, the line of all models and, perhaps, those that tell of others and of
    // failures.
    let failed = usize::from(figures.total.failed > 0);
    let rest = lines.len() + end.len() + 3 + failed;
    let fit = room.height.map_or(usize::MAX, |height| height.saturating_sub(rest).max(1));
    lines.extend(models(figures, fit.min(room.models), room.width));
    lines.extend(end);
    lines.truncate(room.height.unwrap_or(usize::MAX));
    lines
}

fn title(url: &str, status: &Status, figures: &Figures) -> Line {
    let (tone, state) = match (status.draining, status.ready) {
        (true, _) => (Tone::Bad, "stopping"),
        (false, true) => (Tone::Good, "ready"),
        (false, false) => (Tone::Bad, "not ready"),
    };
    let over = match figures.over {
        Some(over) => {
            let seconds = over.as_secs_f64();
            format!("of the last {} s", grouped(seconds, usize::from(seconds < 0.95)))
        }
        None => "since its start".to_owned(),
    };
    let version = in_one_line(&status.version);
    let models = status.models.len();
    let plural = if models == 1 { "" } else { "s" };
    Line(vec![
        (Tone::Strong, format!("Fermata {version}")),
        (Tone::Plain, format!(" at {url}: ")),
        (tone, state.to_owned()),
        (Tone::Faint, format!(", up {}, {models} model{plural}, {over}", span(status.uptime_s))),
    ])
}

/// A long time, roughly.
fn span(seconds: f64) -> String {
    match seconds as u64 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

fn models(figures: &Figures, most: usize, width: usize) -> Vec<Line> {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    rows.push(COLUMNS.iter().map(|column| one(Tone::Faint, column.head)).collect());
    let hidden = figures.models.len().saturating_sub(most);
    rows.extend(figures.models.iter().take(most).map(row));
    if figures.models.len() > 1 {
        rows.push(total(&figures.total));
    }
    let mut lines = align(rows, width);
    if figures.models.is_empty() {
        lines.push(Line(vec![(Tone::Faint, "no model is served".to_owned())]));
    }
    if figures.total.failed > 0 {
        let text = format!("{} requests failed", grouped(figures.total.failed as f64, 0));
        lines.push(Line(vec![(Tone::Bad, text)]));
    }
    if hidden > 0 {
        let word = if hidden == 1 { "model has" } else { "models have" };
        let text = format!("{hidden} more {word} fewer requests");
        lines.insert(1 + most, Line(vec![(Tone::Faint, text)]));
    }
    lines
}

fn one(tone: Tone, text: impl Into<String>) -> Cell {
    vec![(tone, text.into())]
}

fn row(model: &ModelFigures) -> Vec<Cell> {
    let ms = |quantile: Option<Quantile>| match quantile {
        Some(quantile) => {
            let beyond = if quantile.beyond { ">" } else { "" };
            one(
                tone_of(quantile),
                format!("{beyond}{}", milliseconds(quantile.of_slo * model.slo_ms)),
            )
        }
        None => one(Tone::Faint, "–"),
    };
    let mut cells = vec![
        one(Tone::Plain, shortened(&model.name)),
        one(Tone::Plain, format!("{} ms", plain(model.slo_ms))),
    ];
    cells.extend(common(model, ms(model.p50), ms(model.p99)));
    cells
}

/// A name that takes no more room than there is.
fn shortened(name: &str) -> String {
    let name = in_one_line(name);
    match name.chars().count() > NAME_MAX {
        true => name.chars().take(NAME_MAX - 1).chain(['…']).collect(),
        false => name,
    }
}

/// The line of all models: their latencies are parts of the SLO.
fn total(all: &ModelFigures) -> Vec<Cell> {
    let part = |quantile: Option<Quantile>| match quantile {
        Some(quantile) => {
            let beyond = if quantile.beyond { ">" } else { "" };
            one(tone_of(quantile), format!("{beyond}{:.0} %", 100.0 * quantile.of_slo))
        }
        None => one(Tone::Faint, "–"),
    };
    let mut cells = vec![one(Tone::Strong, all.name.clone()), one(Tone::Plain, "")];
    cells.extend(common(all, part(all.p50), part(all.p99)));
    cells
}

fn common(model: &ModelFigures, p50: Cell, p99: Cell) -> [Cell; 11] {
    let share = match model.in_time {
        Some(share) if share >= GOOD => one(Tone::Good, percent(share)),
        Some(share) => one(Tone::Bad, percent(share)),
        None => one(Tone::Faint, "–"),
    };
    let count = |count: u64| match count {
        0 => one(Tone::Faint, "0"),
        count => one(Tone::Bad, grouped(count as f64, 0)),
    };
    [
        one(Tone::Plain, rate(model.rate)),
        share,
        p50,
        p99,
        bar(model.p50, model.p99),
        one(Tone::Plain, grouped(model.pending as f64, 0)),
        model
            .mean_batch()
            .map_or(one(Tone::Faint, "–"), |mean| one(Tone::Plain, format!("{mean:.1}"))),
        sizes(model),
        one(Tone::Plain, model.limiter().map(shortened).unwrap_or_default()),
        count(model.dropped),
        count(model.late),
    ]
}

fn tone_of(quantile: Quantile) -> Tone {
    if quantile.of_slo > 1.0 || quantile.beyond { Tone::Bad } else { Tone::Plain }
}

fn rate(rate: f64) -> String {
    grouped(rate, if rate > 0.0 && rate < 10.0 { 1 } else { 0 })
}

/// Rounded down, so that only what is whole is called so.
fn percent(share: f64) -> String {
    format!("{:.1} %", (1e3 * share).floor() / 10.0)
}

fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.2}"),
        ms if ms < 1_000.0 => format!("{ms:.1}"),
        ms => grouped(ms, 0),
    }
}

/// As few digits as it has.
fn plain(ms: f64) -> String {
    grouped(ms, usize::from(ms.fract() != 0.0))
}

/// The p50 and the p99, in a bar that ends at the SLO.
fn bar(p50: Option<Quantile>, p99: Option<Quantile>) -> Cell {
    let (Some(p50), Some(p99)) = (p50, p99) else { return one(Tone::Faint, "") };
    let cells = |quantile: Quantile| (quantile.of_slo * BAR as f64).round() as usize;
    let (half, most) = (cells(p50).min(BAR), cells(p99).clamp(0, BAR));
    let end = if tone_of(p99) == Tone::Bad { (Tone::Bad, "▶") } else { (Tone::Faint, "│") };
    vec![
        (Tone::Accent, "█".repeat(half)),
        (Tone::Accent, "▒".repeat(most.saturating_sub(half))),
        (Tone::Faint, " ".repeat(BAR - most.max(half))),
        (end.0, end.1.to_owned()),
    ]
}

/// How many batches there were by size, and the largest.
fn sizes(model: &ModelFigures) -> Cell {
    let sizes = (model.batches.keys().next(), model.batches.keys().next_back());
    let (Some(&least), Some(&most)) = sizes else { return one(Tone::Faint, "") };
    let columns = SIZES.min(most - least + 1);
    let mut counts = vec![0; columns];
    for (&size, &count) in &model.batches {
        counts[(size - least) * columns / (most - least + 1)] += count;
    }
    let range = if least == most { most.to_string() } else { format!("{least}–{most}") };
    vec![
        (Tone::Accent, heights(counts.iter().map(|&count| count as f64))),
        (Tone::Plain, " ".repeat(SIZES - columns + 1)),
        (Tone::Faint, range),
    ]
}

/// A letter for each value, as high as it is against the highest.
fn heights(values: impl Iterator<Item = f64> + Clone) -> String {
    let highest = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    values.map(|value| height(value / highest)).collect()
}

/// Nothing for nothing, and else a letter from low to high.
fn height(share: f64) -> char {
    if share <= 0.0 {
        return ' ';
    }
    HEIGHTS[((share * HEIGHTS.len() as f64).ceil() as usize).clamp(1, HEIGHTS.len()) - 1]
}

/// Columns as wide as they must be, without those that find no room.
fn align(mut rows: Vec<Vec<Cell>>, room: usize) -> Vec<Line> {
    let length = |cell: &Cell| cell.iter().map(|(_, text)| text.chars().count()).sum::<usize>();
    let mut columns: Vec<(&Column, usize)> = COLUMNS
        .iter()
        .enumerate()
        .map(|(at, column)| {
            let widest = rows.iter().map(|row| length(&row[at])).max().unwrap_or(0);
            (column, widest.max(column.width))
        })
        .collect();
    let total = |columns: &[(&Column, usize)]| {
        columns.iter().map(|(_, width)| width + GAP.len()).sum::<usize>() - GAP.len()
    };
    while total(&columns) > room {
        let spare = columns.iter().map(|(column, _)| column.spare).max().unwrap_or(0);
        if spare == 0 {
            break;
        }
        while let Some(at) = columns.iter().position(|(column, _)| column.spare == spare) {
            columns.remove(at);
            rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }
    let line = |row: Vec<Cell>| {
        let mut line = Vec::new();
        for (at, (cell, (column, width))) in row.into_iter().zip(&columns).enumerate() {
            let space = " ".repeat(width - length(&cell));
            let gap = if at == 0 { "" } else { GAP };
            line.push((Tone::Plain, gap.to_owned()));
            if column.left {
                line.extend(cell);
                line.push((Tone::Plain, space));
            } else {
                line.push((Tone::Plain, space));
                line.extend(cell);
            }
        }
        Line(line)
    };
    rows.into_iter().map(line).collect()
}

fn pools(pools: &[PoolFigures], width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let name_width = pools.iter().map(|figures| figures.pool.name.chars().count()).max();
    for PoolFigures { pool, busy } in pools {
        let name = format!("{:1$}", in_one_line(&pool.name), name_width.unwrap_or(0));
        let tone = if pool.bad > 1.0 - GOOD { Tone::Bad } else { Tone::Plain };
        let word = if pool.executors == 1 { "executor " } else { "executors" };
        lines.push(Line::default());
        lines.push(Line(vec![
            (Tone::Strong, format!("pool {name}")),
            (
                Tone::Plain,
                format!("  {:>4} {word}  {:>3.0} % busy  ", pool.executors, 100.0 * pool.busy),
            ),
            (tone, format!("{:>4.1} % bad", 100.0 * pool.bad)),
            (tone, format!("  {:>4} advised", pool.advised_executors)),
        ]));
        lines.extend(executors(busy, width));
    }
    lines
}

/// A letter for each executor, as high as it was busy.
fn executors(busy: &[f64], width: usize) -> Vec<Line> {
    // More lines than these tell nobody anything.
    const LINES_MAX: usize = 4;
    let room = width.saturating_sub(2).clamp(1, 64);
    let line = |busy: &[f64]| {
        let letters: String =
            busy.iter().map(|&busy| if busy < 0.005 { '·' } else { height(busy) }).collect();
        Line(vec![(Tone::Plain, "  ".to_owned()), (Tone::Accent, letters)])
    };
    busy.chunks(room).take(LINES_MAX).map(line).collect()
}

/// How many GPUs the plan has, and what it was made for.
fn plan(plan: &Plan) -> [Line; 2] {
    let Plan { gpus, gpus_limit, plans, moves, last } = plan;
    let mut line = vec![
        (Tone::Strong, "plan".to_owned()),
        (Tone::Plain, format!("  {gpus} of {gpus_limit} GPUs  {plans} plans  {moves} moves")),
    ];
    if let Some(last) = last {
        let tone = if last.gpus > *gpus_limit { Tone::Bad } else { Tone::Faint };
        let (age, why) = (span(last.age_s), in_one_line(&last.why));
        line.push((tone, format!("  the last {age} ago asked for {}: {why}", last.gpus)));
    }
    [Line::default(), Line(line)]
}

fn missing(status: &Status) -> Vec<Line> {
    let missing = &status.missing;
    let mut lines = Vec::new();
    for model in missing.iter().take(MISSING_MAX) {
        let mut text = format!("not served: {}", in_one_line(&model.name));
        if !model.state.is_empty() {
            let _ = write!(text, ", {}", in_one_line(&model.state.to_lowercase()));
        }
        lines.push(Line(vec![
            (Tone::Bad, text),
            (Tone::Plain, format!(" {}", in_one_line(&model.reason))),
        ]));
    }
    if missing.len() > MISSING_MAX {
        let text = format!("not served: {} more", missing.len() - MISSING_MAX);
        lines.push(Line(vec![(Tone::Bad, text)]));
    }
    if !lines.is_empty() {
        lines.insert(0, Line::default());
    }
    lines
}

impl Line {
    /// Without colours.
    pub(super) fn plain(&self) -> String {
        let text: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().to_owned()
    }

    /// For a terminal, no wider than it is.
    pub(super) fn coloured(&self, width: usize, colours: bool) -> String {
        let mut text = String::new();
        let mut room = width;
        for (tone, piece) in &self.0 {
            let piece: String = piece.chars().take(room).collect();
            room -= piece.chars().count();
            match tone.code().filter(|_| colours && !piece.trim().is_empty()) {
                Some(code) => {
                    let _ = write!(text, "\x1b[{code}m{piece}\x1b[0m");
                }
                None => text += &piece,
            }
        }
        text
    }
}

impl Tone {
    /// Of the sixteen colours that every terminal's owner has chosen to be readable.
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Accent => Some("36"),
            Self::Bad => Some("31"),
            Self::Faint => Some("2"),
            Self::Good => Some("32"),
            Self::Plain => None,
            Self::Strong => Some("1"),
        }
    }
}
