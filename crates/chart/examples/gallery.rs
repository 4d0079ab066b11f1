//! Every kind of chart in one figure, to look at after a change:
//! `cargo run -p fermata-chart --example gallery > gallery.svg`

use std::io::Write;

use fermata_chart::{
    Axis, BarSeries, Bars, Block, Figure, Lines, Mark, Panel, Row, Series, Timeline,
};

fn main() -> std::io::Result<()> {
    let row = |height, panels| Row { height, panels };
    let figure = Figure {
        title: "Every kind of chart".to_owned(),
        subtitle: "made-up numbers".to_owned(),
        width: 1200.0,
        rows: vec![
            row(340.0, vec![Box::new(load_sweep()), Box::new(distribution())]),
            row(300.0, vec![Box::new(grouped_bars())]),
            row(260.0, vec![Box::new(changing_load())]),
            row(200.0, vec![Box::new(timeline()) as Box<dyn Panel>]),
        ],
    };
    std::io::stdout().write_all(figure.render().as_bytes())
}

fn load_sweep() -> Lines {
    let curve = |top: f64| (1..=12).map(|at| f64::from(at) * 500.0).map(move |x| (x, x.min(top)));
    Lines {
        title: "A load sweep".to_owned(),
        x: Axis::from_zero("offered (requests/s)"),
        y: Axis::from_zero("in time (requests/s)"),
        series: vec![
            Series::measured("fermata", curve(5500.0).collect()),
            Series::measured("deferred", curve(5250.0).collect()),
            Series::measured("eager", curve(4450.0).collect()),
            Series { dashed: true, ..Series::line("bound", curve(5839.0).collect()) },
        ],
        marks: vec![Mark::X(5000.0, "the file's rate".to_owned())],
    }
}

fn distribution() -> Lines {
    let values = |scale: f64| {
        (1..400).map(move |at| scale * (f64::from(at) * 0.7).sin().abs().powi(2) + 0.5)
    };
    let series = |name: &str, scale| Series::cumulative(name, &values(scale).collect::<Vec<_>>());
    Lines {
        title: "A cumulative distribution on a logarithmic axis".to_owned(),
        x: Axis::log("goodput relative to the best other policy"),
        y: Axis::between("share of workloads", 0.0, 1.0),
        series: vec![series("fermata", 1.0), series("deferred", 4.0), series("eager", 20.0)],
        marks: vec![Mark::X(1.0, "equal".to_owned()), Mark::Y(0.5, "median".to_owned())],
    }
}

fn grouped_bars() -> Bars {
    let series =
        |name: &str, values: [f64; 4]| BarSeries { name: name.to_owned(), values: values.into() };
    Bars {
        title: "Grouped bars, one of them missing".to_owned(),
        x_title: "workload".to_owned(),
        y: Axis::from_zero("goodput (requests/s)"),
        groups: ["ResNet50", "InceptionResNetV2", "A100 zoo", "1080Ti zoo"]
            .map(String::from)
            .into(),
        series: vec![
            series("paper", [5264.0, 926.0, f64::NAN, 7000.0]),
            series("clockwork", [1358.0, 458.0, 9000.0, 3000.0]),
            series("nexus", [4027.0, 618.0, 11000.0, 5000.0]),
            series("deferred", [5250.0, 930.0, 17000.0, 7250.0]),
            series("fermata", [5500.0, 977.0, 18450.0, 7730.0]),
        ],
        values: Some(0),
    }
}

fn changing_load() -> Lines {
    let points = |phase: f64| {
        (0..200).map(move |at| {
            let time = f64::from(at) * 7.2;
            (time, 300.0 + 150.0 * (time / 200.0 + phase).sin())
        })
    };
    let stairs = |name: &str, phase| Series {
        shape: fermata_chart::Shape::Stairs,
        ..Series::line(name, points(phase).collect())
    };
    Lines {
        title: "A changing load".to_owned(),
        x: Axis::from_zero("time (s)"),
        y: Axis::from_zero("executors"),
        series: vec![stairs("needed", 0.0), stairs("busy", 0.3)],
        marks: vec![],
    }
}

fn timeline() -> Timeline {
    let block = |at: usize| {
        let start = 3.0 * at as f64;
        Block {
            row: at % 3,
            start,
            finish: start + 8.5,
            colour: at % 8,
            label: (at % 5 + 1).to_string(),
            cut: at == 7,
        }
    };
    Timeline {
        title: "A timeline, with one batch cut short".to_owned(),
        time: Axis::between("time (ms)", 0.0, 60.0),
        rows: 3,
        legend: (0..8).map(|model| format!("model {model}")).collect(),
        blocks: (0..20).map(block).collect(),
        misses: vec![12.0, 13.0, 40.0],
    }
}
