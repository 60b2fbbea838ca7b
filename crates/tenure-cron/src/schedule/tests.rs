use jiff::civil::Date;

use super::*;

fn at(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn due(schedule: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::new(schedule, zone).unwrap();
    let mut now = at(from);
    let next = || {
        now = schedule.next_after(now)?;
        Some(show_instant(now))
    };
    std::iter::from_fn(next).take(count).collect()
}

#[test]
fn what_falls_into_a_gap_is_due_at_the_first_instant_after_it() {
    let due = due("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
    assert_eq!(due, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
}

#[test]
fn of_a_time_that_comes_twice_the_first_counts() {
    let due = due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(due, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    let from = "2026-10-25T00:45:00Z";
    let late = super::tests::due("30 2 * * *", "Europe/Berlin", from, 1);
    assert_eq!(late, ["2026-10-26T01:30:00Z"]);
}

#[test]
fn distances_go_on_through_both_changes() {
    for day in ["2026-03-29", "2026-10-25"] {
        let from = format!("{day}T00:00:00Z");
        let due = due("*/15 * * * *", "Europe/Berlin", &from, 12);
        let first = at(&from);
        let each: Vec<String> = (1..=12).map(|n| show_instant(first + n * 900_000)).collect();
        assert_eq!(due, each);
    }
}

#[test]
fn an_hourly_job_runs_in_both_of_two_equal_hours() {
    let due = due("@hourly", "Europe/Berlin", "2026-10-24T23:30:00Z", 3);
    assert_eq!(due, ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]);
}

#[test]
fn a_step_of_hours_goes_by_the_clock_on_the_wall() {
    let spring = due("0 */6 * * *", "Europe/Berlin", "2026-03-28T20:00:00Z", 3);
    assert_eq!(spring, ["2026-03-28T23:00:00Z", "2026-03-29T04:00:00Z", "2026-03-29T10:00:00Z"]);
    let autumn = due("0 */6 * * *", "Europe/Berlin", "2026-10-24T20:00:00Z", 3);
    assert_eq!(autumn, ["2026-10-24T22:00:00Z", "2026-10-25T05:00:00Z", "2026-10-25T11:00:00Z"]);
    // 02:00 is not there in spring, and there twice in autumn.
    let spring = due("0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", 2);
    assert_eq!(spring, ["2026-03-28T23:00:00Z", "2026-03-29T02:00:00Z"]);
    let autumn = due("0 */2 * * *", "Europe/Berlin", "2026-10-24T21:30:00Z", 4);
    let twice = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"];
    assert_eq!(autumn[1..3], twice);
    assert_eq!([&*autumn[0], &*autumn[3]], ["2026-10-24T22:00:00Z", "2026-10-25T03:00:00Z"]);
}

#[test]
fn a_half_hour_change_at_lord_howe_is_no_exception() {
    // 02:00 becomes 02:30 on 4 October 2026, at 15:30 UTC of the day before.
    let due = due("15 2 * * *", "Australia/Lord_Howe", "2026-10-02T20:00:00Z", 2);
    assert_eq!(due, ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]);
}

#[test]
fn names_last_days_and_nth_weekdays_are_understood() {
    for (schedule, first) in [
        ("0 9 * * MON-FRI", "2026-01-01T09:00:00Z"),
        ("0 0 L * *", "2026-01-31T00:00:00Z"),
        ("0 0 * * MON#2", "2026-01-12T00:00:00Z"),
        ("0 0 * * 5L", "2026-01-30T00:00:00Z"),
        ("0 0 15W FEB *", "2026-02-16T00:00:00Z"),
        ("5-20/5 10,12 * JAN,mar sun", "2026-01-04T10:05:00Z"),
        ("*/10 * * * * *", "2026-01-01T00:00:10Z"),
        ("15 30 4 * * *", "2026-01-01T04:30:15Z"),
        ("@daily", "2026-01-02T00:00:00Z"),
        ("@WEEKLY", "2026-01-04T00:00:00Z"),
        ("@monthly", "2026-02-01T00:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("0 0 13 * FRI", "2026-01-02T00:00:00Z"),
    ] {
        assert_eq!(due(schedule, "UTC", "2026-01-01T00:00:00Z", 1), [first], "{schedule}");
    }
}

#[test]
fn an_error_names_the_field() {
    for (schedule, says) in [
        ("", "it is empty"),
        ("* * * *", "it has 4 fields"),
        ("* * * * * * *", "it has 7 fields"),
        ("61 * * * *", "field 1 (minute) is \"61\", and takes 0 to 59"),
        ("* 24 * * *", "field 2 (hour) is \"24\""),
        ("* * 32 * *", "field 3 (day of month)"),
        ("* * * 13 *", "field 4 (month)"),
        ("* * * * 8", "field 5 (weekday)"),
        ("* * * * MOON", "field 5 (weekday) is \"MOON\""),
        ("MON * * * *", "field 1 (minute) is \"MON\""),
        ("* JAN * * *", "field 2 (hour)"),
        ("*/0 * * * *", "field 1 (minute)"),
        ("5-1 * * * *", "field 1 (minute)"),
        ("60 * * * * *", "field 1 (second)"),
        ("* 60 * * * *", "field 2 (minute)"),
        ("@sometimes", "known are @yearly"),
        ("@reboot", "known are @yearly"),
        ("; rm -rf *  * *", "field 1 (second)"),
        ("0 0 30 2 *", "never comes due"),
        ("0 0 31 APR,JUN *", "never comes due"),
    ] {
        let error = Schedule::new(schedule, "UTC").unwrap_err();
        assert!(error.message().contains(says), "{schedule:?}: {error}");
    }
}

#[test]
fn a_zone_that_does_not_exist_comes_with_those_that_do() {
    for (zone, offers) in [
        ("Europe/Berln", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("America/New York", "America/New_York"),
        ("Ameria/Chicgo", "America/Chicago"),
    ] {
        let error = Schedule::new("@daily", zone).unwrap_err();
        assert!(error.message().contains(offers), "{zone}: {error}");
    }
    let error = Schedule::new("@daily", "Middle-earth/Bree-on-the-hill").unwrap_err();
    assert!(error.message().contains("such as Europe/Berlin"), "{error}");
    assert!(Schedule::new("@daily", "").is_err());
}

#[test]
fn a_local_time_that_does_not_exist_or_comes_twice_is_refused() {
    let gap = parse_instant("2026-03-29T02:30:00", "Europe/Berlin").unwrap_err();
    assert!(gap.message().contains("does not exist in Europe/Berlin"), "{gap}");
    let fold = parse_instant("2026-10-25T02:30:00", "Europe/Berlin").unwrap_err();
    assert!(fold.message().contains("2026-10-25T02:30:00+02"), "{fold}");
    assert!(parse_instant("yesterday", "UTC").is_err());
    let sure = parse_instant("2026-10-25T02:30:00+02:00", "Europe/Berlin").unwrap();
    assert_eq!(sure, at("2026-10-25T00:30:00Z"));
}

#[test]
fn the_last_instants_of_a_gap_are_found_from_its_end() {
    let each_second = Schedule::new("* * * * * *", "UTC").unwrap();
    let (from, to) = (at("2020-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"));
    let last = each_second.last_between(from, to, 3);
    assert_eq!(last, [to - 2000, to - 1000, to]);
    assert_eq!(each_second.count_between(from, to), COUNT_MAX);
    assert_eq!(each_second.count_between(to - 3000, to), 3);
    let yearly = Schedule::new("@yearly", "UTC").unwrap();
    assert_eq!(yearly.last_between(from, to, 3).len(), 3);
    assert_eq!(yearly.last_between(from, to, 100).len(), 6);
    assert!(yearly.last_between(to, to + 1, 3).is_empty());
}

/// Every zone, in a few years of its own: the seed is in the message of a failure.
fn samples() -> impl Iterator<Item = (TimeZone, String, i16)> {
    let names: Vec<String> =
        jiff::tz::db().available().map(|name| name.as_str().to_owned()).collect();
    assert!(names.len() > 400, "the bundled zones are there");
    names.into_iter().enumerate().flat_map(|(index, name)| {
        let zone = jiff::tz::db().get(&name).unwrap();
        // Each zone in four of the sixteen years, so that all years are met many times.
        (0..4).map(move |turn| {
            let year = 2020 + ((index * 5 + turn * 4) % 16) as i16;
            (zone.clone(), name.clone(), year)
        })
    })
}

/// The days of a year on which the zone changes, and their neighbours.
fn days_of_change(zone: &TimeZone, year: i16) -> Vec<Date> {
    let start = Date::new(year, 1, 1).unwrap().to_zoned(TimeZone::UTC).unwrap().timestamp();
    let end = Date::new(year + 1, 1, 1).unwrap().to_zoned(TimeZone::UTC).unwrap().timestamp();
    let mut days: Vec<Date> = zone
        .following(start)
        .take_while(|change| change.timestamp() < end)
        .flat_map(|change| {
            let day = zone.to_datetime(change.timestamp()).date();
            [day.yesterday().unwrap(), day, day.tomorrow().unwrap()]
        })
        .collect();
    days.push(Date::new(year, 7, 15).unwrap());
    days
}

#[test]
fn a_fixed_time_is_due_exactly_once_on_every_day_of_every_zone() {
    let mut days = 0;
    for (zone, name, year) in samples() {
        for (minute, hour) in [(0, 0), (30, 0), (30, 1), (15, 2), (30, 2), (0, 3), (59, 23)] {
            let schedule = Schedule::new(&format!("{minute} {hour} * * *"), &name).unwrap();
            for day in days_of_change(&zone, year) {
                // Five days, because a gap before midnight moves a tick to the next date.
                let midnight = |days: i64| {
                    let day = day.checked_add(jiff::Span::new().days(days)).unwrap();
                    day.to_zoned(zone.clone()).unwrap().timestamp().as_millisecond()
                };
                let due = schedule.last_between(midnight(-2) - 1, midnight(3) - 1, 100);
                assert_eq!(due.len(), 5, "{hour:02}:{minute:02} around {day} in {name}");
                // No change is larger than the two hours of Troll station.
                for pair in due.windows(2) {
                    let hours = (pair[1] - pair[0]) / 3_600_000;
                    assert!((20..=28).contains(&hours), "{hours} h around {day} in {name}");
                }
                days += 1;
            }
        }
    }
    assert!(days > 10_000, "{days} days were looked at");
}

#[test]
fn a_fixed_time_is_due_when_the_clock_shows_it_or_first_after_a_gap() {
    for (zone, name, year) in samples() {
        let schedule = Schedule::new("30 2 * * *", &name).unwrap();
        for day in days_of_change(&zone, year) {
            let civil = day.at(2, 30, 0, 0);
            let start = day.to_zoned(zone.clone()).unwrap().timestamp().as_millisecond();
            let due = Timestamp::from_millisecond(schedule.next_after(start - 1).unwrap()).unwrap();
            let shown = zone.to_datetime(due);
            let second = SignedDuration::from_secs(1);
            if shown == civil {
                // And it is the first time that the clock shows it.
                let first = zone.to_ambiguous_timestamp(civil).earlier().unwrap();
                assert_eq!(due, first, "{day} in {name}");
            } else {
                // The clock jumped over it at that very instant.
                let before = zone.to_datetime(due - second);
                assert!(before < civil && civil < shown, "{day} in {name}: {before} {shown}");
            }
        }
    }
}

#[test]
fn distances_keep_to_the_elapsed_time_in_every_zone() {
    for (zone, name, year) in samples() {
        let schedule = Schedule::new("*/5 * * * *", &name).unwrap();
        for day in days_of_change(&zone, year) {
            let mut at = day.to_zoned(zone.clone()).unwrap().timestamp().as_millisecond();
            at = schedule.next_after(at).unwrap();
            for _ in 0..12 * 26 {
                let next = schedule.next_after(at).unwrap();
                assert_eq!(next - at, 300_000, "{day} in {name} after {}", show_instant(at));
                at = next;
            }
        }
    }
}
