//! The plots of the page on benchmarks: one for each figure, with a panel for each axis.

use std::fmt::Write;

use super::svg::{Style, Svg, WIDTH};
use super::vertical::Vertical;
use crate::contestant::Contestant;
use crate::keys::grouped;
use crate::report::Row;
use crate::scale::{Axis, Scale};

const LEFT: f64 = 58.0;
const RIGHT: f64 = 20.0;
/// Between two panels.
const GAP: f64 = 20.0;
const TITLE_Y: f64 = 32.0;
const LEGEND_Y: f64 = 60.0;
const TOP: f64 = 124.0;
const CHART_HEIGHT: f64 = 190.0;
const BOTTOM: f64 = TOP + CHART_HEIGHT;
const HEIGHT: f64 = BOTTOM + 58.0;
/// Between the sides of a panel and its first and last place.
const INSET: f64 = 22.0;
/// Half of a mark's size.
const MARK: f64 = 4.0;

/// Those that are drawn, the one to look at on top of the others, with the classes of their lines.
const LINES: [(Contestant, &str); 5] = [
    (Contestant::None, "none"),
    (Contestant::Upsert, "upsert"),
    (Contestant::Redis, "redis"),
    (Contestant::Governor, "governor"),
    (Contestant::Tollgate, "tollgate"),
];

/// Colours that differ in brightness as well, and marks that differ in shape.
const STYLE: Style = Style {
    light: "
  .grid { stroke: #d9dfe5 }
  .series { fill: none; stroke-width: 1.75; stroke-linejoin: round }
  .mark { stroke: #f6f8fa; stroke-width: 1 }
  .apart { stroke-dasharray: 4 4 }
  .none { stroke: #818b98 } .mark.none { fill: #818b98; stroke: #f6f8fa }
  .tollgate { stroke: #0860ca; stroke-width: 2.5 } .mark.tollgate { fill: #0860ca; stroke: #f6f8fa; stroke-width: 1 }
  .governor { stroke: #9a6700 } .mark.governor { fill: #9a6700; stroke: #f6f8fa }
  .upsert { stroke: #8250df } .mark.upsert { fill: #8250df; stroke: #f6f8fa }
  .redis { stroke: #c21c2c } .mark.redis { fill: #c21c2c; stroke: #f6f8fa }",
    dark: "
    .grid { stroke: #2f363e }
    .none { stroke: #848d97 } .mark.none { fill: #848d97; stroke: #151b23 }
    .tollgate { stroke: #58a6ff } .mark.tollgate { fill: #58a6ff; stroke: #151b23 }
    .governor { stroke: #e3b341 } .mark.governor { fill: #e3b341; stroke: #151b23 }
    .upsert { stroke: #bc8cff } .mark.upsert { fill: #bc8cff; stroke: #151b23 }
    .redis { stroke: #ff7b72 } .mark.redis { fill: #ff7b72; stroke: #151b23 }",
};

/// What a plot is about.
#[derive(Clone, Copy)]
pub(super) struct Plot {
    pub(super) file: &'static str,
    title: &'static str,
    note: &'static str,
    is_logarithmic: bool,
    value: fn(&Row) -> Option<f64>,
}

pub(super) const PLOTS: [Plot; 3] = [
    Plot {
        file: "throughput.svg",
        title: "Requests a second",
        note: "medians; more is better",
        is_logarithmic: false,
        value: |row| row.known(|turn| Some(turn.per_second)),
    },
    Plot {
        file: "p99.svg",
        title: "p99 of the latency, ms",
        note: "medians, logarithmic; less is better",
        is_logarithmic: true,
        value: |row| row.known(|turn| Some(turn.p99_micros / 1e3)),
    },
    Plot {
        file: "server-cpu.svg",
        title: "Server CPU for each request, µs",
        note: "medians, logarithmic; less is better",
        is_logarithmic: true,
        value: |row| row.known(|turn| turn.cpu_micros),
    },
];

/// Draws a plot of what was measured.
pub(super) fn draw(plot: Plot, scale: &Scale) -> String {
    let mut svg = Svg::new(HEIGHT);
    let axes = Axis::ALL.map(Axis::label).join(", ");
    svg.told_as(
        &format!("{} by {axes}", plot.title),
        &description(plot, scale),
    );
    svg.page(STYLE);
    svg.put(format_args!(
        r#"<text class="heading" x="{LEFT:.1}" y="{TITLE_Y:.1}">{}<tspan class="note" dx="12" style="font-size:13px;font-weight:400">{}</tspan></text>"#,
        plot.title, plot.note
    ));
    legend(&mut svg);
    let values: Vec<_> = Axis::ALL
        .into_iter()
        .flat_map(|axis| LINES.map(|(contestant, _)| series(plot, scale, axis, contestant)))
        .flatten()
        .map(|(_, value)| value)
        .collect();
    let vertical = Vertical::of(&values, plot.is_logarithmic, BOTTOM, CHART_HEIGHT);
    for (index, axis) in Axis::ALL.into_iter().enumerate() {
        let panel = Panel {
            left: LEFT + (panel_width() + GAP) * index as f64,
            axis,
        };
        panel.draw(&mut svg, plot, scale, &vertical);
    }
    for tick in vertical.ticks() {
        svg.text(LEFT - 8.0, vertical.y(tick) + 4.5, "end note", &short(tick));
    }
    svg.text(
        WIDTH - RIGHT,
        HEIGHT - 12.0,
        "end note",
        "dashed: in memory, each process counts for itself",
    );
    svg.finish()
}

fn panel_width() -> f64 {
    let panels = Axis::ALL.len() as f64;
    (WIDTH - LEFT - RIGHT - GAP * (panels - 1.0)) / panels
}

fn legend(svg: &mut Svg) {
    let mut x = LEFT;
    for (contestant, class) in LINES.iter().rev() {
        let y = LEGEND_Y - 4.5;
        svg.line(&format!("series {class}"), (x, y), (x + 24.0, y));
        mark(svg, class, (x + 12.0, y));
        svg.text(x + 31.0, LEGEND_Y, "", contestant.label());
        x += 31.0 + 7.0 * contestant.label().len() as f64 + 18.0;
    }
}

/// The values of a contestant along an axis, each with the index of its place.
fn series(plot: Plot, scale: &Scale, axis: Axis, contestant: Contestant) -> Vec<(usize, f64)> {
    let value = |(index, value): (usize, &u32)| {
        // Answers that were not as expected have no place in a line.
        let row = scale
            .row(contestant, axis.point(*value))
            .filter(|row| row.failed() == 0)?;
        Some((index, (plot.value)(&row)?))
    };
    axis.values().iter().enumerate().filter_map(value).collect()
}

struct Panel {
    left: f64,
    axis: Axis,
}

impl Panel {
    fn draw(&self, svg: &mut Svg, plot: Plot, scale: &Scale, vertical: &Vertical) {
        let width = panel_width();
        let title = format!("by {}", self.axis.label());
        svg.text(self.left, TOP - 27.0, "name", &title);
        svg.text(self.left, TOP - 10.0, "note", &self.axis.fixed());
        svg.put(format_args!(
            r#"<rect class="chart" x="{:.1}" y="{TOP:.1}" width="{width:.1}" height="{CHART_HEIGHT:.1}"/>"#,
            self.left
        ));
        for tick in vertical.ticks() {
            let y = vertical.y(tick);
            svg.line("grid", (self.left, y), (self.left + width, y));
        }
        for (index, value) in self.axis.values().iter().enumerate() {
            svg.text(self.x(index), BOTTOM + 19.0, "middle note", &place(*value));
        }
        for (contestant, class) in LINES {
            let places: Vec<_> = series(plot, scale, self.axis, contestant)
                .into_iter()
                .map(|(index, value)| (self.x(index), vertical.y(value)))
                .collect();
            let is_apart = self.axis == Axis::Processes && contestant == Contestant::Governor;
            let apart = if is_apart { " apart" } else { "" };
            let mut path = String::new();
            for (x, y) in &places {
                let step = if path.is_empty() { 'M' } else { 'L' };
                let _ = write!(path, "{step}{x:.1} {y:.1}");
            }
            if !path.is_empty() {
                svg.put(format_args!(
                    r#"<path class="series {class}{apart}" d="{path}"/>"#
                ));
            }
            for place in places {
                mark(svg, class, place);
            }
        }
    }

    fn x(&self, index: usize) -> f64 {
        let steps = (self.axis.values().len() - 1) as f64;
        self.left + INSET + (panel_width() - 2.0 * INSET) * index as f64 / steps
    }
}

/// A shape for each line, so that they can be told apart without colours.
fn mark(svg: &mut Svg, class: &str, (x, y): (f64, f64)) {
    let size = 2.0 * MARK;
    match class {
        "governor" => svg.put(format_args!(
            r#"<rect class="mark {class}" x="{:.1}" y="{:.1}" width="{size}" height="{size}"/>"#,
            x - MARK,
            y - MARK
        )),
        "upsert" | "redis" => {
            // A diamond, and a triangle.
            let shape = if class == "upsert" {
                "l5 5 -5 5 -5 -5z"
            } else {
                "l5 9h-10z"
            };
            svg.put(format_args!(
                r#"<path class="mark {class}" d="M{x:.1} {:.1}{shape}"/>"#,
                y - 5.0
            ));
        }
        _ => svg.put(format_args!(
            r#"<circle class="mark {class}" cx="{x:.1}" cy="{y:.1}" r="{}"/>"#,
            MARK + 0.5
        )),
    }
}

/// A place on an axis, short enough to stand beside the others.
fn place(value: u32) -> String {
    match value {
        1_000_000.. => format!("{}M", value / 1_000_000),
        1_000.. => format!("{}k", value / 1_000),
        _ => grouped(value),
    }
}

/// A tick's value.
fn short(value: f64) -> String {
    if value >= 1_000.0 {
        format!("{}k", value / 1_000.0)
    } else {
        value.to_string()
    }
}

fn description(plot: Plot, scale: &Scale) -> String {
    let mut text = String::new();
    for axis in Axis::ALL {
        let _ = write!(text, "By {} ({}):", axis.label(), axis.fixed());
        for (contestant, _) in LINES.iter().rev() {
            let values = series(plot, scale, axis, *contestant);
            if let (Some((_, first)), Some((_, last))) = (values.first(), values.last()) {
                let label = contestant.label();
                let _ = write!(text, " {label} from {first:.1} to {last:.1},");
            }
        }
        text.pop();
        text.push_str(". ");
    }
    text.trim_end().to_owned()
}
