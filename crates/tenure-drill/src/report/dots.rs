//! Every gap as a dot, one line for each fault, on a logarithmic scale.

use std::fmt::Write as _;
use std::time::Duration;

use crate::judge::Judgement;
use crate::show::show_gap;

const LEFT: f64 = 62.0;
const WIDTH: f64 = 700.0;
const LINE: f64 = 30.0;

/// Draws the dots, for inside the page; its style sheet has the colours.
pub(super) fn draw(judgement: &Judgement) -> String {
    let gaps = || judgement.faults.iter().flat_map(|line| &line.gaps).map(|gap| millis(*gap));
    let least = gaps().fold(f64::INFINITY, f64::min).max(0.01);
    let most = gaps().fold(1.0, f64::max);
    if !least.is_finite() {
        return String::new();
    }
    let (low, high) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
    let x = |millis: f64| LEFT + (millis.max(0.01).log10() - low) / (high - low) * WIDTH;
    let height = judgement.faults.len() as f64 * LINE + 34.0;
    let width = LEFT + WIDTH + 40.0;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         class=\"dots\"><title>Gaps by fault</title>"
    );
    let bottom = height - 22.0;
    for decade in (low as i32)..=(high as i32) {
        let millis = 10_f64.powi(decade);
        let text = show_tick(millis);
        let _ = writeln!(
            svg,
            "<path class=\"rule\" d=\"M{0:.1} 4V{bottom:.1}\"/><text class=\"dim s\" x=\"{0:.1}\" \
             y=\"{1:.1}\" text-anchor=\"middle\">{text}</text>",
            x(millis),
            bottom + 15.0
        );
    }
    for (number, line) in judgement.faults.iter().enumerate() {
        let y = 4.0 + (number as f64 + 0.5) * LINE;
        let name = line.fault.name();
        let _ = writeln!(
            svg,
            "<text class=\"ink\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
            LEFT - 10.0,
            y + 4.0
        );
        for gap in &line.gaps {
            let _ = writeln!(
                svg,
                "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title>\
                 </circle>",
                x(millis(*gap)),
                show_gap(*gap)
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

fn show_tick(millis: f64) -> String {
    if millis >= 1000.0 { format!("{} s", millis / 1000.0) } else { format!("{millis} ms") }
}

fn millis(gap: Duration) -> f64 {
    gap.as_secs_f64() * 1000.0
}
