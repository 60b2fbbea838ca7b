//! The picture: who led when, one lane for each candidate, with the faults on them.
//!
//! Long drills are cut into strips, one below the other, so that a second stays visible.

use std::fmt::Write as _;
use std::time::Duration;

use tenure_core::{Time, show_duration};

use super::{clock, escaped};
use crate::fleet::label;
use crate::judge::Judgement;
use crate::plan::Fault;
use crate::record::{Record, RecordedReign};
use crate::show::{outcome, show_gap};

const LEFT: f64 = 62.0;
const WIDTH: f64 = 1040.0;
const RIGHT: f64 = 18.0;
const LANE: f64 = 22.0;
const HEAD: f64 = 50.0;
/// The lane on top that shows whether anybody leads.
const SUMMARY: f64 = 12.0;
const STRIP_GAP: f64 = 42.0;
/// How long a strip may be, unless there would be too many.
const STRIP_MAX: Duration = Duration::from_secs(75);
const STRIPS_MAX: u32 = 10;
/// A term's number is written where there is room for it.
const NUMBER_MIN: f64 = 22.0;
/// Half of the room that a mark takes.
const MARK_HALF: f64 = 8.0;
const LEGEND_ROW: f64 = 22.0;
/// As many colours as the style sheet has.
const COLOURS: usize = 6;

const STYLE: &str = "\
.page{fill:#fff}.ink{fill:#1c2430}.dim{fill:#5d6877}.rule{stroke:#dde2e9}.alive{stroke:#b4bdc9}\
.lane{fill:#f5f7fa}.t0{fill:#2f6fb3}.t1{fill:#2c8a63}.t2{fill:#8a5fb5}.t3{fill:#b3722f}\
.t4{fill:#2b8a99}.t5{fill:#a8527e}.over{fill:#d1242f;fill-opacity:.35}.gap{fill:#d1242f}\
.on{fill:#fff}.mark{stroke:#1c2430;fill:none}.halo{stroke:#fff;fill:none}\
.kill{stroke:#d1242f;fill:none}\
.frozen{fill:#8fb7dd;fill-opacity:.45}.off{fill:#e8b4b8;fill-opacity:.6}\
.slow{fill:#e9d8a6;fill-opacity:.7}.stale{fill:#e0a100;stroke:#1c2430}\
text{font:12px system-ui,sans-serif}.s{font-size:11px}.b{font-size:15px;font-weight:600}\
@media (prefers-color-scheme:dark){.page{fill:#12161c}.ink{fill:#e8ecf1}.dim{fill:#9aa5b3}\
.rule{stroke:#2a323d}.alive{stroke:#4a5563}.lane{fill:#1a2028}.gap{fill:#ff5c5c}\
.mark{stroke:#f2f5f8}.halo{stroke:#12161c}.kill{stroke:#ff5c5c}\
.frozen{fill:#4f7fae;fill-opacity:.5}.off{fill:#8a3b44;fill-opacity:.6}\
.slow{fill:#6b5a24;fill-opacity:.7}.stale{fill:#f0b429;stroke:#12161c}}";

/// Draws the whole picture.
pub(super) fn draw(record: &Record, judgement: &Judgement) -> String {
    let total = record.ended - record.began;
    let (count, length) = strips(total);
    let tall = SUMMARY + 10.0 + record.candidates as f64 * LANE;
    let height = HEAD + f64::from(count) * (tall + STRIP_GAP) + 44.0 + LEGEND_ROW;
    let width = LEFT + WIDTH + RIGHT;
    let mut svg = Svg { text: String::new() };
    let _ = write!(
        svg.text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" \
         width=\"{width}\" height=\"{height:.0}\" role=\"img\">\n<title>{}</title>\n\
         <style>{STYLE}</style>\n{HATCH}\n",
        escaped(&title(record, judgement)),
    );
    svg.rect("page", 0.0, 0.0, width, height, "");
    svg.words("ink b", LEFT, 22.0, &title(record, judgement));
    let reigns = record.reigns();
    for number in 0..count {
        let top = HEAD + f64::from(number) * (tall + STRIP_GAP);
        let from = record.began + length * number;
        let strip = Strip { record, reigns: &reigns, from, length, top, tall };
        strip.draw(&mut svg);
    }
    legend(&mut svg, height - 22.0 - LEGEND_ROW, record);
    svg.text.push_str("</svg>\n");
    svg.text
}

fn title(record: &Record, judgement: &Judgement) -> String {
    let verdict = outcome(record, judgement);
    // Overlaps in a drill that passed would puzzle people who see the picture alone.
    let admitted = judgement
        .longest_overlap
        .filter(|_| judgement.is_sound())
        .map(|longest| format!(" of at most {}, which this store admits", show_gap(longest)));
    format!(
        "tenure drill {verdict}: {} faults, {} candidates, ttl {}, {} overlaps{}",
        record.rounds.len(),
        record.candidates,
        show_duration(record.timing.ttl),
        judgement.overlaps,
        admitted.unwrap_or_default()
    )
}

/// How many strips there are, all of the same length, which is one that ticks can start at.
fn strips(total: Duration) -> (u32, Duration) {
    let seconds = u32::try_from(total.as_secs() + 1).unwrap_or(u32::MAX).max(10);
    let count = seconds.div_ceil(STRIP_MAX.as_secs() as u32).min(STRIPS_MAX);
    let length = seconds.div_ceil(count).next_multiple_of(if seconds > 20 { 5 } else { 1 });
    (seconds.div_ceil(length), Duration::from_secs(length.into()))
}

const HATCH: &str = "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
    patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"3\" height=\"6\" \
    fill=\"#fff\" fill-opacity=\".55\"/></pattern></defs>";

struct Svg {
    text: String,
}

impl Svg {
    fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64, tip: &str) {
        let shape = format!(
            "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" \
             height=\"{height:.1}\""
        );
        let _ = match tip {
            "" => writeln!(self.text, "{shape}/>"),
            tip => writeln!(self.text, "{shape}><title>{}</title></rect>", escaped(tip)),
        };
    }

    fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        let _ =
            writeln!(self.text, "<path class=\"{class}\" d=\"M{x1:.2} {y1:.1}L{x2:.2} {y2:.1}\"/>");
    }

    fn words(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.anchored(class, x, y, "start", text);
    }

    fn anchored(&mut self, class: &str, x: f64, y: f64, anchor: &str, text: &str) {
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        );
    }

    /// What was done to a candidate, around this point.
    fn symbol(&mut self, fault: Fault, x: f64, y: f64, tip: &str) {
        let (class, path) = match fault {
            Fault::Kill => ("kill", "M-5 -5L5 5M-5 5L5 -5"),
            Fault::Die => ("kill", "M-5 -5L5 5"),
            Fault::Freeze => ("mark", "M-3 -6V6M3 -6V6"),
            Fault::Resign => ("mark", "M0 -6V5M-4.5 0.5L0 5.5L4.5 0.5"),
            // A line with a gap in it, and one that leads nowhere.
            Fault::Cut => ("kill", "M-7 0H-3M3 0H7M-2 5L2 -5"),
            Fault::Hole => ("kill", "M-6 0H0M0 -5V5M4 -3V3"),
            // A flash.
            Fault::Reset => ("mark", "M2 -6L-3 1H3L-2 6"),
            // Dots.
            Fault::Delay => ("mark", "M-6 0H-5.5M-0.2 0H0.2M5.5 0H6"),
            // Round again.
            Fault::Restart => ("mark", "M4.5 -2A5 5 0 1 0 5 1.5M5 -6V-2H1"),
            Fault::Clock => ("mark", "M-5 0A5 5 0 1 0 5 0A5 5 0 1 0 -5 0M0 -3V0H2.5"),
        };
        self.mark(class, path, x, y, tip);
    }

    fn mark(&mut self, class: &str, path: &str, x: f64, y: f64, tip: &str) {
        let _ = writeln!(
            self.text,
            "<g transform=\"translate({x:.2} {y:.1})\" stroke-linecap=\"round\" \
             stroke-linejoin=\"round\"><title>{}</title><path class=\"halo\" stroke-width=\"5\" \
             d=\"{path}\"/><path class=\"{class}\" stroke-width=\"2.2\" d=\"{path}\"/></g>",
            escaped(tip)
        );
    }

    /// A stale write that was stopped.
    fn stale(&mut self, x: f64, y: f64, tip: &str) {
        let _ = writeln!(
            self.text,
            "<circle class=\"stale\" cx=\"{x:.2}\" cy=\"{y:.1}\" r=\"3.6\"><title>{}</title>\
             </circle>",
            escaped(tip)
        );
    }
}

/// The way in which a frozen process goes on.
const THAW: &str = "M-3.5 -5L4.5 0L-3.5 5Z";

/// One strip.
struct Strip<'a> {
    record: &'a Record,
    reigns: &'a [RecordedReign],
    from: Time,
    length: Duration,
    top: f64,
    tall: f64,
}

impl Strip<'_> {
    fn draw(&self, svg: &mut Svg) {
        self.axis(svg);
        self.summary(svg);
        for lane in 0..self.record.candidates {
            let y = self.lane(lane);
            svg.rect("lane", LEFT, y, WIDTH, LANE - 2.0, "");
            svg.anchored("ink", LEFT - 10.0, y + 14.0, "end", &label(lane));
        }
        self.alive(svg);
        self.lasting(svg);
        self.reigns.iter().for_each(|reign| self.reign(svg, reign));
        self.marks(svg);
        self.overlaps(svg);
    }

    fn lane(&self, lane: usize) -> f64 {
        self.top + SUMMARY + 8.0 + lane as f64 * LANE
    }

    /// Where an instant stands, even outside of the strip.
    fn x(&self, at: Time) -> f64 {
        let (ahead, back) = ((at - self.from).as_secs_f64(), (self.from - at).as_secs_f64());
        LEFT + (ahead - back) / self.length.as_secs_f64() * WIDTH
    }

    /// The part of a span that is in the strip.
    fn clipped(&self, from: Time, until: Time) -> Option<(f64, f64)> {
        let (start, end) = (self.x(from).max(LEFT), self.x(until).min(LEFT + WIDTH));
        (start < end).then_some((start, end - start))
    }

    fn shows(&self, at: Time) -> bool {
        at >= self.from && at < self.from + self.length
    }

    fn axis(&self, svg: &mut Svg) {
        let since = (self.from - self.record.began).as_secs();
        let step = tick_s(self.length);
        let mut at = since.next_multiple_of(step);
        while at <= since + self.length.as_secs() {
            let x = self.x(self.record.began + Duration::from_secs(at));
            svg.line("rule", x, self.top, x, self.top + self.tall + 2.0);
            let text = clock(Duration::from_secs(at));
            svg.anchored("dim s", x, self.top + self.tall + 15.0, "middle", &text);
            at += step;
        }
    }

    /// The colour of the leader, red while nobody works.
    fn summary(&self, svg: &mut Svg) {
        svg.anchored("dim s", LEFT - 10.0, self.top + 10.0, "end", "leader");
        let mut until = self.reigns.first().map_or(self.record.ended, |first| first.from);
        for reign in self.reigns {
            self.gap(svg, until, reign.from);
            if let Some((x, width)) = self.clipped(reign.from, self.working_until(reign)) {
                svg.rect(&self.colour(reign), x, self.top, width, SUMMARY, &tip(reign));
            }
            until = self.working_until(reign);
        }
    }

    fn gap(&self, svg: &mut Svg, from: Time, until: Time) {
        if let Some((x, width)) = self.clipped(from, until) {
            let tip = format!("nobody worked for {}", show_gap(until - from));
            // Even a millisecond is to be seen.
            svg.rect("gap", x, self.top, width.max(2.0), SUMMARY, &tip);
        }
    }

    /// A leader that is frozen, dead or cut off does nothing, however long it is trusted.
    fn working_until(&self, reign: &RecordedReign) -> Time {
        let mut rounds = self.record.rounds.iter();
        let stops = |fault| {
            use Fault::{Cut, Die, Freeze, Hole, Kill};
            matches!(fault, Kill | Die | Freeze | Cut | Hole)
        };
        let hit = rounds.find(|round| round.term == reign.term && stops(round.fault));
        hit.map_or(reign.until, |round| round.at.min(reign.until))
    }

    fn alive(&self, svg: &mut Svg) {
        let processes = self.record.events.iter().map(|told| told.process).max();
        for process in 0..=processes.unwrap_or(0) {
            let Some(first) = self.record.events.iter().find(|told| told.process == process) else {
                continue;
            };
            let until = self.record.killed.get(&process).copied().unwrap_or(self.record.ended);
            if let Some((x, width)) = self.clipped(first.at, until) {
                let y = self.lane(first.lane) + LANE / 2.0 - 1.0;
                svg.line("alive", x, y, x + width, y);
            }
        }
    }

    /// While a fault lasts.
    fn lasting(&self, svg: &mut Svg) {
        for round in &self.record.rounds {
            let (class, state) = match round.fault {
                Fault::Freeze => ("frozen", "is frozen"),
                Fault::Cut => ("off", "is cut off"),
                Fault::Hole => ("off", "hears and says nothing, or one of them"),
                Fault::Delay => ("slow", "is slowed down"),
                _ => continue,
            };
            let until = round.over.unwrap_or(self.record.ended);
            if let Some((x, width)) = self.clipped(round.at, until) {
                let tip = format!("{} {state}", label(round.lane));
                svg.rect(class, x, self.lane(round.lane), width, LANE - 2.0, &tip);
            }
        }
    }

    fn reign(&self, svg: &mut Svg, reign: &RecordedReign) {
        let Some((x, width)) = self.clipped(reign.from, reign.until) else { return };
        let y = self.lane(reign.lane) + 2.0;
        svg.rect(&self.colour(reign), x, y, width.max(1.5), LANE - 6.0, &tip(reign));
        let idle = [reign.draining, Some(self.working_until(reign))].into_iter().flatten().min();
        if let Some((x, width)) = idle.and_then(|idle| self.clipped(idle, reign.until)) {
            let fill = "fill=\"url(#hatch)\"";
            let _ = writeln!(
                svg.text,
                "<rect {fill} x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{:.1}\"/>",
                LANE - 6.0
            );
        }
        let solid = self.clipped(reign.from, idle.unwrap_or(reign.until)).map_or(0.0, |(_, w)| w);
        let number = reign.term.to_string();
        let wide = NUMBER_MIN.max(10.0 + number.len() as f64 * 6.4);
        let from = self.free_of_marks(reign, x, wide);
        if number.len() <= 6 && from + wide <= x + solid {
            svg.words("on s", from + 5.0, y + 12.0, &number);
        }
    }

    /// Where, from here on, so much room is between the marks on a lane.
    fn free_of_marks(&self, reign: &RecordedReign, mut from: f64, wide: f64) -> f64 {
        let on_lane = self.record.rounds.iter().filter(|round| round.lane == reign.lane);
        let mut marks: Vec<f64> = on_lane
            .flat_map(|round| [Some(round.at), round.over])
            .flatten()
            .filter(|at| self.shows(*at))
            .map(|at| self.x(at))
            .collect();
        marks.sort_by(f64::total_cmp);
        for mark in marks {
            if mark - MARK_HALF < from + wide && mark + MARK_HALF > from {
                from = mark + MARK_HALF;
            }
        }
        from
    }

    /// Each term has another colour than the one before, whatever its number.
    fn colour(&self, reign: &RecordedReign) -> String {
        let before = self.reigns.iter().filter(|other| other.term < reign.term).count();
        format!("t{}", before % COLOURS)
    }

    /// What must never be: across all lanes.
    fn overlaps(&self, svg: &mut Svg) {
        for (index, later) in self.reigns.iter().enumerate() {
            for earlier in &self.reigns[..index] {
                let until = earlier.until.min(later.until);
                let both = (earlier.process != later.process).then_some(());
                if let Some((x, width)) = both.and_then(|()| self.clipped(later.from, until)) {
                    let tip = format!("terms {} and {} at once", earlier.term, later.term);
                    svg.rect("over", x, self.top, width.max(3.0), self.tall, &tip);
                }
            }
        }
    }

    fn marks(&self, svg: &mut Svg) {
        for round in self.record.rounds.iter() {
            let middle = self.lane(round.lane) + LANE / 2.0 - 1.0;
            if self.shows(round.at) {
                let shape = match round.shape {
                    "" => String::new(),
                    shape => format!(" ({shape})"),
                };
                let tip = format!("{}{shape} of {}", round.fault.name(), label(round.lane));
                svg.symbol(round.fault, self.x(round.at), middle, &tip);
            }
            if let Some(at) = round.over.filter(|at| self.shows(*at)) {
                svg.mark(
                    "mark",
                    THAW,
                    self.x(at),
                    middle,
                    &format!("{} goes on", label(round.lane)),
                );
            }
        }
        for told in self.record.events.iter().filter(|told| self.shows(told.at)) {
            let by = match told.event.as_str() {
                "write_refused" => "the fence",
                "write_withheld" => "its own clock",
                _ => continue,
            };
            let tip = format!("a stale write of term {}, stopped by {by}", told.term);
            let x = self.x(told.at) + 10.0;
            svg.stale(x, self.lane(told.lane) + LANE / 2.0 - 1.0, &tip);
        }
    }
}

fn tip(reign: &RecordedReign) -> String {
    let lasted = show_gap(reign.until - reign.from);
    format!("{} leads term {} for {lasted}", label(reign.lane), reign.term)
}

/// The distance of two ticks: not more than fifteen of them.
fn tick_s(length: Duration) -> u64 {
    let steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600];
    let fits = |step: &&u64| length.as_secs() / **step <= 15;
    steps.iter().find(fits).copied().unwrap_or(length.as_secs() / 10)
}

/// What the marks mean, as far as there are any, in as many rows as it takes.
fn legend(svg: &mut Svg, top: f64, record: &Record) {
    let has = |fault: Fault| record.rounds.iter().any(|round| round.fault == fault);
    let mut cursor = LegendCursor { x: LEFT, y: top };
    let (x, y) = cursor.next(svg, "leads, coloured by term");
    svg.rect("t0", x - 4.0, y - 6.0, 14.0, 12.0, "");
    let (x, y) = cursor.next(svg, "trusted, but draining, frozen or cut off");
    svg.rect("t0", x - 4.0, y - 6.0, 14.0, 12.0, "");
    let _ = writeln!(
        svg.text,
        "<rect fill=\"url(#hatch)\" x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"12\"/>",
        x - 4.0,
        y - 6.0
    );
    let (x, y) = cursor.next(svg, "nobody works");
    svg.rect("gap", x - 4.0, y - 6.0, 14.0, 12.0, "");
    for (fault, text) in [
        (Fault::Kill, "killed"),
        (Fault::Die, "killed without its witness"),
        (Fault::Freeze, "frozen"),
        (Fault::Cut, "connections cut"),
        (Fault::Hole, "packets lost"),
        (Fault::Reset, "connections reset"),
        (Fault::Delay, "connections slow"),
        (Fault::Resign, "asked to resign"),
        (Fault::Restart, "store restarted"),
        (Fault::Clock, "wall clock stepped"),
    ] {
        if has(fault) {
            let (x, y) = cursor.next(svg, text);
            svg.symbol(fault, x + 4.0, y, text);
        }
    }
    if record.rounds.iter().any(|round| round.over.is_some()) {
        let (x, y) = cursor.next(svg, "goes on, or heals");
        svg.mark("mark", THAW, x + 4.0, y, "");
    }
    let (x, y) = cursor.next(svg, "stale write stopped");
    svg.stale(x + 4.0, y, "");
}

/// Where the next word of the legend goes.
struct LegendCursor {
    x: f64,
    y: f64,
}

impl LegendCursor {
    fn next(&mut self, svg: &mut Svg, text: &str) -> (f64, f64) {
        let width = 36.0 + text.len() as f64 * 5.7;
        if self.x + width > LEFT + WIDTH {
            (self.x, self.y) = (LEFT, self.y + LEGEND_ROW);
        }
        svg.words("dim s", self.x + 16.0, self.y + 4.0, text);
        let here = (self.x, self.y);
        self.x += width;
        here
    }
}
