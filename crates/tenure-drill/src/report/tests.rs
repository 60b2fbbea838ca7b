//! The files are well formed, show what they should, and need nothing from elsewhere.

use super::*;
use crate::judge::{judge, tests::sound};
use crate::plan::Fault;

/// The elements of a document in which every tag is closed in its turn, as XML wants it.
#[track_caller]
fn elements(text: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a stray > in {before:?}");
        assert_entities(before);
        let (tag, after) = after.split_once('>').expect("a tag that ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let name: String = tag.chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(!name.is_empty(), "{tag:?}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag:?}");
        assert_entities(tag);
        seen.push(name.clone());
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    seen
}

#[track_caller]
fn assert_entities(text: &str) {
    for (start, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;"];
        assert!(known.iter().any(|entity| text[start..].starts_with(entity)), "{text:?}");
    }
}

#[test]
fn the_picture_and_the_page_are_well_formed() {
    let record = sound();
    let judgement = judge(&record, Some("<script>alert('&')</script>".to_owned()));
    let svg = timeline::draw(&record, &judgement);
    let reigns = elements(&svg).iter().filter(|name| *name == "rect").count();
    assert!(reigns > 10, "{svg}");
    let page = html::page(&record, &judgement, &svg);
    let elements = elements(&page);
    assert!(elements.contains(&"svg".to_owned()) && elements.contains(&"table".to_owned()));
    assert!(!elements.contains(&"script".to_owned()), "what is shown is escaped");
    assert!(page.contains("a&amp;b.db") && page.contains("&lt;script&gt;"));
}

#[test]
fn the_page_asks_for_nothing_from_elsewhere() {
    let record = sound();
    let judgement = judge(&record, None);
    let page = html::page(&record, &judgement, &timeline::draw(&record, &judgement));
    let name = "http://www.w3.org/2000/svg";
    assert!(!page.replace(name, "").contains("http"));
    for word in ["src=", "href=", "@import", "<link", "<script"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn an_overlap_is_drawn_and_a_sound_drill_has_none() {
    let mut record = sound();
    let draw = |record: &_| timeline::draw(record, &judge(record, None));
    assert!(!draw(&record).contains("class=\"over\""));
    let early = record.events.iter_mut().find(|told| told.is("elected") && told.term == 3).unwrap();
    early.at = early.at - Duration::from_millis(400);
    assert!(draw(&record).contains("class=\"over\""));
}

#[test]
fn a_long_drill_is_cut_into_few_strips() {
    let mut record = sound();
    let judgement = judge(&record, None);
    for (seconds, strips) in [(5, 1), (60, 1), (74, 1), (300, 5), (3600, 10)] {
        record.ended = record.began + Duration::from_secs(seconds);
        let svg = timeline::draw(&record, &judgement);
        elements(&svg);
        assert_eq!(svg.matches(">leader</text>").count(), strips, "{seconds} s");
    }
}

#[test]
fn a_drill_without_a_single_round_can_be_shown_too() {
    let mut record = sound();
    record.events.clear();
    record.rows = None;
    record.rounds.clear();
    let judgement = judge(&record, None);
    let svg = timeline::draw(&record, &judgement);
    elements(&html::page(&record, &judgement, &svg));
    assert!(judgement.faults.is_empty());
}

#[test]
fn every_line_of_the_history_is_an_object_with_its_instant() {
    let record = sound();
    let lines = record.lines();
    let written = record.rows().len() + record.acknowledged.len();
    let count = record.events.len() + record.rounds.len() + written + 1;
    assert_eq!(lines.len(), count, "and one thaw");
    for line in lines {
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(json["event"].is_string(), "{line}");
    }
    assert_eq!(Fault::Kill.name(), "kill");
}

#[test]
fn overlaps_that_the_store_admits_are_called_so_in_the_picture() {
    let record = sound();
    let mut judgement = judge(&record, None);
    assert!(timeline::draw(&record, &judgement).contains(", 0 overlaps</title>"));
    judgement.overlaps = 2;
    judgement.longest_overlap = Some(std::time::Duration::from_millis(26));
    let admitted = "2 overlaps of at most 26 ms, which this store admits";
    assert!(timeline::draw(&record, &judgement).contains(admitted));
    judgement.violations.push("I1: two leaders".to_owned());
    assert!(timeline::draw(&record, &judgement).contains(", 2 overlaps</title>"));
}
