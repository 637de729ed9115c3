//! The basis of all plots: a page with its own background, and text and lines in the same style.

use std::fmt::{Arguments, Write};

/// As wide as pages show it.
pub(super) const WIDTH: f64 = 800.0;

/// Its own background, so that it can be read on any page; dark where the reader prefers that.
const LIGHT: &str = "
  text { font: 13px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif; fill: #1f2328 }
  .heading { font-size: 17px; font-weight: 600 }
  .name { font-size: 14px; font-weight: 600 }
  .code { font: 13px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; font-weight: 400 }
  .note { fill: #59636e }
  .end { text-anchor: end }
  .middle { text-anchor: middle }
  .page { fill: #ffffff; stroke: #d1d9e0 }
  .chart { fill: #f6f8fa }";
const DARK: &str = "
    text { fill: #e6edf3 }
    .note { fill: #9ba4ae }
    .page { fill: #0d1117; stroke: #3d444d }
    .chart { fill: #151b23 }";

/// The classes of one plot, in both themes.
#[derive(Clone, Copy)]
pub(super) struct Style {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

pub(super) struct Svg {
    text: String,
    height: f64,
}

impl Svg {
    pub(super) fn new(height: f64) -> Self {
        let text = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title desc">"#
        );
        Self { text, height }
    }

    /// For those who don't see it.
    pub(super) fn told_as(&mut self, title: &str, description: &str) {
        self.put(format_args!(r#"<title id="title">{title}</title>"#));
        self.put(format_args!(r#"<desc id="desc">{description}</desc>"#));
    }

    /// The style, and the background.
    pub(super) fn page(&mut self, style: Style) {
        let Style { light, dark } = style;
        self.put(format_args!(
            "<style>{LIGHT}{light}\n  @media (prefers-color-scheme: dark) {{{DARK}{dark}\n  }}\n</style>"
        ));
        let (width, height) = (WIDTH - 1.0, self.height - 1.0);
        self.put(format_args!(
            r#"<rect class="page" x="0.5" y="0.5" width="{width}" height="{height}" rx="6"/>"#
        ));
    }

    pub(super) fn put(&mut self, line: Arguments<'_>) {
        let _ = write!(self.text, "\n{line}");
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#
        ));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            r#"<path class="{class}" d="M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"/>"#
        ));
    }

    pub(super) fn finish(self) -> String {
        self.text + "\n</svg>\n"
    }
}
