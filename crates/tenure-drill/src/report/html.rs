//! The report: one page that needs nothing but itself.

use std::fmt::Write as _;

use tenure_core::{show_duration, show_rounded};

use super::{clock, dots, escaped};
use crate::judge::Judgement;
use crate::record::Record;
use crate::show::{cells, complaints, outcome, show_gap, verdict};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--dim:#5d6877;--page:#fff;--rule:#dde2e9;\
--card:#f5f7fa;--good:#1a7f4b;--bad:#d1242f;--dot:#2f6fb3}\
@media (prefers-color-scheme:dark){:root{--ink:#e8ecf1;--dim:#9aa5b3;--page:#12161c;\
--rule:#2a323d;--card:#1a2028;--good:#4cc38a;--bad:#ff6b6b;--dot:#6ea8e0}}\
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}\
main{max-width:1120px;margin:0 auto;padding:32px 24px 64px}\
h1{font-size:24px;margin:0 0 12px}h2{font-size:17px;margin:36px 0 10px}\
p,li{max-width:76ch}p{margin:8px 0}.dim{color:var(--dim)}\
.verdict{border-left:5px solid var(--good);background:var(--card);padding:12px 16px;\
font-size:16px;max-width:none}.verdict.bad{border-color:var(--bad)}\
.verdict.open{border-color:var(--dim)}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
th,td{padding:6px 14px;text-align:right;border-bottom:1px solid var(--rule)}\
th{color:var(--dim);font-weight:500;font-size:13px;vertical-align:bottom}\
th:first-child,td:first-child{text-align:left;padding-left:0}\
.facts{display:flex;flex-wrap:wrap;gap:6px 28px;margin:16px 0 0;padding:0;list-style:none}\
.facts b{font-weight:500}.wide{overflow-x:auto}.wide svg{max-width:100%;height:auto}\
.dots{width:802px;max-width:100%}.dots text{font:12px system-ui,sans-serif}\
.dots .dot{fill:var(--dot);fill-opacity:.55}.dots .ink{fill:var(--ink)}.dots .dim{fill:var(--dim)}\
.dots .rule{stroke:var(--rule)}code{font-family:ui-monospace,monospace;font-size:.92em}\
@media print{main{max-width:none}}";

const HEADER: [&str; 10] = [
    "fault",
    "rounds",
    "gap p50",
    "p99",
    "max",
    "overlaps",
    "stale writes stopped by the fence",
    "by the clock",
    "acknowledged writes lost",
    "terms",
];

/// The whole page.
pub(super) fn page(record: &Record, judgement: &Judgement, timeline: &str) -> String {
    let outcome = outcome(record, judgement);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>tenure drill: {outcome}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Failover drill</h1>\n"
    );
    let class = match outcome {
        "passed" => "verdict",
        "failed" => "verdict bad",
        _ => "verdict open",
    };
    let _ = writeln!(
        page,
        "<p class=\"{class}\">{}</p>",
        escaped(&capital(&verdict(record, judgement)))
    );
    complain(&mut page, judgement);
    facts(&mut page, record);
    table(&mut page, judgement);
    let _ =
        writeln!(page, "<h2>Every gap</h2>\n<div class=\"wide\">{}</div>", dots::draw(judgement));
    let _ = writeln!(page, "<h2>Who led when</h2>\n<div class=\"wide\">\n{timeline}</div>");
    page.push_str(READING);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn complain(page: &mut String, judgement: &Judgement) {
    if judgement.is_sound() {
        return;
    }
    page.push_str(
        "<h2>What was broken</h2>\n<p class=\"dim\">Times count from the start of the drill.</p>\n\
         <ul>\n",
    );
    for sentence in complaints(judgement) {
        let _ = writeln!(page, "<li>{}</li>", escaped(&sentence));
    }
    page.push_str("</ul>\n");
}

fn facts(page: &mut String, record: &Record) {
    let timing = &record.timing;
    let when = format!("{:.0}", record.wall.of(record.began));
    let took = clock(record.ended - record.began);
    page.push_str("<ul class=\"facts\">\n");
    for (name, value) in [
        ("store", record.store.as_str()),
        ("candidates", &record.candidates.to_string()),
        ("ttl", &show_duration(timing.ttl)),
        ("renewed every", &show_rounded(timing.renew_every)),
        ("margin", &show_rounded(timing.margin)),
        ("seed", &record.seed.to_string()),
        ("began", &when),
        ("took", &took),
        ("tenure", env!("CARGO_PKG_VERSION")),
    ] {
        let value = escaped(value);
        let _ = writeln!(page, "<li><span class=\"dim\">{name}</span> <b>{value}</b></li>");
    }
    page.push_str("</ul>\n");
}

fn table(page: &mut String, judgement: &Judgement) {
    page.push_str("<h2>By fault</h2>\n<div class=\"wide\"><table>\n<thead><tr>");
    for name in HEADER {
        let _ = write!(page, "<th>{name}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for line in &judgement.faults {
        page.push_str("<tr>");
        for cell in cells(line) {
            let _ = write!(page, "<td>{}</td>", escaped(&cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
    let longest = judgement.faults.iter().filter_map(|line| line.gaps.last()).max();
    if let Some(longest) = longest {
        let longest = show_gap(*longest);
        let _ = writeln!(page, "<p class=\"dim\">The longest time without a leader: {longest}</p>");
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

const READING: &str = "<h2>How to read it</h2>
<ul>
<li><b>Gap</b>: how long nobody worked. It counts from the instant of the fault, after a resignation
from when the old leader's work had ended, under a delay from when it was told to stop, until
another candidate was elected. A dash: leadership went on.</li>
<li><b>Kill</b>: the leader's process and its witness get SIGKILL. On a store that can see a death,
a successor leads at once; elsewhere the lease has to run out.</li>
<li><b>Die</b>: the leader's process gets SIGKILL, alone. Its witness gives the lease back.</li>
<li><b>Freeze</b>: the leader is stopped until somebody else leads and works, then goes on. Nobody
can tell a frozen process from a slow one, so the gap is what is left of the lease.</li>
<li><b>Resign</b>: the leader is asked to hand over. It winds its work up first, then gives the
lease back.</li>
<li><b>Cut</b>: the leader's connections are closed, and so is every new one, until somebody else
leads. <b>Hole</b>: what it sends, or is sent, or both in turn, does not arrive, and nobody is told;
when somebody else leads, it arrives late. Both are done by a proxy between the candidates and the
store.</li>
<li><b>Reset</b>: all its connections are reset, once. It makes new ones and leads on, unless the
store binds the lease to a connection.</li>
<li><b>Delay</b>: answers come later by a tenth of the ttl, which leadership survives; every third
time everything takes half a ttl, which it does not.</li>
<li><b>Restart</b>: the store is restarted, by a command that was given.</li>
<li><b>Clock</b>: the wall clock of all candidates is stepped by an hour or a day. Nothing may
change, so there is no gap.</li>
<li><b>Overlaps</b>: how often two candidates trusted themselves at the same instant. It must
be 0, except on a store that binds leases to connections: it may free one whose holder has not
noticed. There the overlap must end within a ttl, and the fence must stop the older one.</li>
<li><b>Stale writes stopped</b>: a candidate that goes on after a freeze, or that was cut off, tries
to finish its write under its old term. The fence in the data refuses it, or the candidate sees by
its own clock that its trust has ended.</li>
<li><b>Acknowledged writes lost</b>: the store had told the leader that they were done, and at the
end they are not there. It must be 0, except for restarts of a store that keeps its data in memory
(Redis): what it then forgets depends on how it is set up, and elections do not rest on it.</li>
<li>In the picture, a leader that is frozen or cut off stays trusted (hatched) until its lease nears
its end. Its successor begins only after that.</li>
</ul>
<h2>What was checked</h2>
<p>A checker that knows nothing but the recorded events holds them against the promises: at most one
candidate trusts itself at any instant (I1); terms only rise (I2); nobody acts outside its reign
(I3); each reign ends with exactly one step-down, told in order (I6). Every leader goes on counting
where the one before it stopped, so a write that comes late is seen (fence). Each leader tells which
writes were acknowledged to it, so one that is lost is seen, even if it was the last (lost); of one
that is killed, what it could still tell. All times are those of one clock, CLOCK_BOOTTIME of this
machine; <code>history.jsonl</code> has every event.</p>
<p class=\"dim\">A drill shows what happened in these rounds, with these timings, on this machine.
It can find a fault; it can't prove that there is none.</p>
";
