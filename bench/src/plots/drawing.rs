//! The plot as SVG: the requests on top, and a panel for each algorithm, under one axis of time.

use std::fmt::Write;

use super::requests::LENGTH;
use super::shown::{LIMIT, Shown, WINDOW_MILLIS};
use super::svg::{Style, Svg, WIDTH};

const LEFT: f64 = 52.0;
const RIGHT: f64 = 20.0;

const TITLE_Y: f64 = 32.0;
const LEGEND_Y: f64 = 58.0;
const REQUESTS_Y: f64 = 96.0;
const REQUESTS_HEIGHT: f64 = 20.0;
const PANELS_Y: f64 = 158.0;
/// From the top of a panel's chart to that of the next one.
const PANEL_STEP: f64 = 146.0;
const CHART_HEIGHT: f64 = 88.0;
/// Above the highest count.
const CHART_HEADROOM: f64 = 8.0;
const TICKS_HEIGHT: f64 = 14.0;
/// Between the chart and the ticks below it.
const TICKS_GAP: f64 = 6.0;
/// Twice the limit.
const HIGHEST: u32 = 2 * LIMIT;

const STYLE: Style = Style {
    light: "
  .over { fill: #c21c2c }
  .remark { paint-order: stroke; stroke: #f6f8fa; stroke-width: 5px; stroke-linejoin: round }
  .boundary { stroke: #c3cbd3 }
  .limit { stroke: #59636e; stroke-dasharray: 5 4 }
  .request { stroke: #1f2328 }
  .admitted { stroke: #0860ca; stroke-width: 1.5 }
  .refused { stroke: #eba79b; stroke-width: 1.5 }
  .count { fill: none; stroke: #0860ca; stroke-width: 1.5 }
  .area { fill: #0860ca; fill-opacity: 0.16 }
  .excess { fill: #c21c2c; fill-opacity: 0.5 }",
    dark: "
    .over { fill: #ff8d85 }
    .remark { stroke: #151b23 }
    .boundary { stroke: #3d444d }
    .limit { stroke: #9ba4ae }
    .request { stroke: #e6edf3 }
    .admitted { stroke: #58a6ff }
    .refused { stroke: #84473f }
    .count { stroke: #58a6ff }
    .area { fill: #58a6ff; fill-opacity: 0.2 }
    .excess { fill: #f85149; fill-opacity: 0.6 }",
};

/// Draws what each algorithm made of the requests.
pub(super) fn draw(requests: &[i64], shown: &[Shown]) -> String {
    let panels_end = PANELS_Y + PANEL_STEP * shown.len() as f64;
    let mut svg = Svg::new(panels_end + 26.0);
    svg.describe(requests, shown);
    svg.page(STYLE);
    svg.text(
        LEFT,
        TITLE_Y,
        "heading",
        "The same requests under four algorithms",
    );
    svg.legend(LEGEND_Y);
    svg.requests(requests);
    for (index, shown) in shown.iter().enumerate() {
        svg.panel(PANELS_Y + PANEL_STEP * index as f64, index, shown);
    }
    svg.axis(panels_end - 16.0);
    svg.finish()
}

impl Svg {
    fn ticks(&mut self, class: &str, instants: &[i64], y: f64, height: f64) {
        let tick = |at: &i64| format!("M{:.1} {y:.1}v{height:.1}", x(*at));
        let path: String = instants.iter().map(tick).collect();
        self.put(format_args!(r#"<path class="{class}" d="{path}"/>"#));
    }

    fn describe(&mut self, requests: &[i64], shown: &[Shown]) {
        let title = format!(
            "The same requests under four algorithms, each with a limit of {LIMIT} in 60 seconds"
        );
        let mut description = format!(
            "{} requests in five and a half minutes: ten right before a window's end and ten right after it, ten more half a \
             minute later, one each second for two minutes, and fifteen at once after a rest.",
            requests.len()
        );
        for shown in shown {
            let _ = write!(description, " {}: {}.", shown.code, summary(shown));
        }
        self.told_as(&title, &description);
    }

    fn legend(&mut self, y: f64) {
        let mut x = LEFT;
        let mut entry = |svg: &mut Self, width: f64, label: &str, draw: &dyn Fn(&mut Self, f64)| {
            draw(svg, x);
            svg.text(x + width + 6.0, y, "note", label);
            x += width + 6.0 + 6.6 * label.len() as f64 + 22.0;
        };
        entry(self, 8.0, "admitted", &|svg, x| {
            svg.line("admitted", (x + 2.0, y - 11.0), (x + 2.0, y + 2.0));
            svg.line("admitted", (x + 6.0, y - 11.0), (x + 6.0, y + 2.0));
        });
        entry(self, 8.0, "refused", &|svg, x| {
            svg.line("refused", (x + 2.0, y - 11.0), (x + 2.0, y + 2.0));
            svg.line("refused", (x + 6.0, y - 11.0), (x + 6.0, y + 2.0));
        });
        entry(self, 22.0, "admitted in the last 60 s", &|svg, x| {
            svg.put(format_args!(
                r#"<path class="area" d="M{:.1} {:.1}h22v9h-22z"/>"#,
                x,
                y - 9.0
            ));
            svg.line("count", (x, y - 9.0), (x + 22.0, y - 9.0));
        });
        entry(self, 22.0, "more than 10", &|svg, x| {
            svg.put(format_args!(
                r#"<path class="excess" d="M{:.1} {:.1}h22v9h-22z"/>"#,
                x,
                y - 9.0
            ));
        });
        entry(self, 22.0, "10 in 60 s", &|svg, x| {
            svg.line("limit", (x, y - 4.5), (x + 22.0, y - 4.5));
        });
    }

    fn requests(&mut self, requests: &[i64]) {
        let title = format!("{} requests", requests.len());
        self.text(LEFT, REQUESTS_Y - 8.0, "name", &title);
        self.boundaries(REQUESTS_Y, REQUESTS_HEIGHT);
        self.ticks("request", requests, REQUESTS_Y, REQUESTS_HEIGHT);
    }

    fn panel(&mut self, top: f64, index: usize, shown: &Shown) {
        let bottom = top + CHART_HEIGHT;
        let scale = (CHART_HEIGHT - CHART_HEADROOM) / f64::from(HIGHEST);
        let y = |count: u32| bottom - scale * f64::from(count);
        self.put(format_args!(
            r#"<text class="name" x="{LEFT:.1}" y="{:.1}">{}<tspan class="code" dx="10">{}</tspan></text>"#,
            top - 9.0,
            shown.title,
            shown.code
        ));
        let class = if most(shown) > LIMIT {
            "end over"
        } else {
            "end note"
        };
        self.text(WIDTH - RIGHT, top - 9.0, class, &summary(shown));

        self.put(format_args!(
            r#"<rect class="chart" x="{LEFT:.1}" y="{top:.1}" width="{:.1}" height="{CHART_HEIGHT:.1}"/>"#,
            WIDTH - LEFT - RIGHT
        ));
        self.boundaries(top, CHART_HEIGHT + TICKS_GAP + TICKS_HEIGHT);
        for count in [0, LIMIT, HIGHEST] {
            self.text(LEFT - 8.0, y(count) + 4.5, "end note", &count.to_string());
        }
        self.text(
            WIDTH - RIGHT - 8.0,
            top + 18.0,
            "end note remark",
            shown.remark,
        );
        let line = steps(shown, y);
        // Closed along the bottom; what lies above the limit is seen through a window of its own.
        let area = format!("{line}V{bottom:.1}H{:.1}z", x(0));
        self.put(format_args!(
            r#"<clipPath id="over{index}"><rect x="{LEFT:.1}" y="{top:.1}" width="{:.1}" height="{:.1}"/></clipPath>"#,
            WIDTH - LEFT - RIGHT,
            y(LIMIT) - top
        ));
        self.put(format_args!(r#"<path class="area" d="{area}"/>"#));
        if most(shown) > LIMIT {
            self.put(format_args!(
                r#"<path class="excess" clip-path="url(#over{index})" d="{area}"/>"#
            ));
        }
        self.line("limit", (LEFT, y(LIMIT)), (WIDTH - RIGHT, y(LIMIT)));
        self.put(format_args!(r#"<path class="count" d="{line}"/>"#));

        let ticks_top = bottom + TICKS_GAP;
        self.ticks("refused", &shown.refused, ticks_top, TICKS_HEIGHT);
        self.ticks("admitted", &shown.admitted, ticks_top, TICKS_HEIGHT);
    }

    /// The starts of windows.
    fn boundaries(&mut self, top: f64, height: f64) {
        let starts: Vec<_> = minutes().collect();
        self.ticks("boundary", &starts, top, height);
    }

    fn axis(&mut self, y: f64) {
        for at in minutes() {
            let label = format!("{}:00", at / 60_000);
            self.text(x(at), y, "middle note", &label);
        }
        let label =
            "time in minutes and seconds; the lines are the starts of aligned windows of 60 s";
        self.text(WIDTH - RIGHT, y + 22.0, "end note", label);
    }
}

/// The starts of the aligned windows.
fn minutes() -> impl Iterator<Item = i64> {
    (0..=LENGTH).step_by(usize::try_from(WINDOW_MILLIS).unwrap_or(usize::MAX))
}

fn x(at: i64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / LENGTH as f64
}

/// The line of what was admitted in the last window.
fn steps(shown: &Shown, y: impl Fn(u32) -> f64) -> String {
    let mut path = format!("M{:.1} {:.1}", x(0), y(0));
    for (at, count) in shown.in_last_window() {
        if at <= LENGTH {
            let _ = write!(path, "H{:.1}V{:.1}", x(at), y(count));
        }
    }
    let _ = write!(path, "H{:.1}", x(LENGTH));
    path
}

fn most(shown: &Shown) -> u32 {
    let counts = shown.in_last_window().into_iter().map(|(_, count)| count);
    counts.max().unwrap_or(0)
}

fn summary(shown: &Shown) -> String {
    format!(
        "{} admitted, at most {} in any 60 s",
        shown.admitted.len(),
        most(shown)
    )
}
