//! One line of `/proc/PID/stat`: who a process is, and whether it is alive.

/// The fields that tell processes apart and who belongs to whom. This crate does no I/O: the caller
/// reads the file.
///
/// # Examples
/// ```
/// use tenure_core::ProcStat;
///
/// let line = std::fs::read("/proc/self/stat")?;
/// let own = ProcStat::parse(&line).expect("the kernel writes all its fields");
/// assert_eq!(own.pid.unsigned_abs(), std::process::id());
/// assert!(!own.is_dead());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcStat {
    /// Its number.
    pub pid: i32,
    /// One letter: `R`, `S`, `D`, `T`, `Z`, ...
    pub state: u8,
    /// The number of its parent.
    pub parent: i32,
    /// The id of its process group.
    pub group: i32,
    /// The id of its session; 0 if that began outside of the pid namespace.
    pub session: i32,
    /// How many threads it has.
    pub threads: u32,
    /// When it started, in clock ticks since the boot. With the pid it names one process, because a
    /// later one of the same number started at another time.
    pub start_ticks: i64,
}

impl ProcStat {
    /// Reads the bytes of `/proc/PID/stat`; `None` if a field is missing or is no number.
    ///
    /// Bytes, not text: the second field is the name of the program, in parentheses. It may hold
    /// anything, `)` and bytes that are no UTF-8 included.
    pub fn parse(stat: &[u8]) -> Option<ProcStat> {
        let open = stat.iter().position(|&byte| byte == b'(')?;
        let close = stat.iter().rposition(|&byte| byte == b')')?;
        let pid = std::str::from_utf8(&stat[..open]).ok()?.trim_end().parse().ok()?;
        let tail = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
        // The first of these is field 3.
        let mut fields = tail.split_ascii_whitespace();
        let &[state] = fields.next()?.as_bytes() else { return None };
        Some(ProcStat {
            pid,
            state,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            session: fields.next()?.parse().ok()?,
            threads: fields.nth(20 - 7)?.parse().ok()?,
            start_ticks: fields.nth(22 - 21)?.parse().ok()?,
        })
    }

    /// Whether it has ended and only waits to be reaped. A process whose first thread has ended
    /// looks the same while its other threads work on; that one is alive (D2).
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A line of a process with this name, in this state and with so many threads.
    fn line(name: &[u8], state: &str, threads: u32) -> Vec<u8> {
        let zeros = "0 ".repeat(13);
        let tail = format!(") {state} 7 8 9 {zeros}{threads} 0 4711 0 0\n");
        [b"42 (", name, tail.as_bytes()].concat()
    }

    fn parsed(name: &[u8], state: &str, threads: u32) -> ProcStat {
        ProcStat::parse(&line(name, state, threads)).expect("a line of the kernel")
    }

    #[test]
    fn a_name_with_anything_in_it_does_not_confuse_the_fields() {
        for name in [&b"sh"[..], b"a) b (c)", b"", b"tab\there\nthere", b"\xff) S 1 2 3"] {
            let stat = parsed(name, "S", 3);
            assert_eq!((stat.pid, stat.parent, stat.group, stat.session), (42, 7, 8, 9));
            assert_eq!((stat.state, stat.threads, stat.start_ticks), (b'S', 3, 4711));
        }
    }

    #[test]
    fn a_zombie_is_dead_when_its_last_thread_is() {
        assert!(parsed(b"sh", "Z", 1).is_dead() && parsed(b"sh", "X", 0).is_dead());
        assert!(!parsed(b"sh", "Z", 2).is_dead(), "its other thread works on");
        assert!(!parsed(b"sh", "S", 1).is_dead());
    }

    #[test]
    fn a_stopped_process_is_known_by_its_letter() {
        assert!(parsed(b"sh", "T", 1).is_stopped() && parsed(b"sh", "t", 1).is_stopped());
        assert!(!parsed(b"T", "R", 1).is_stopped());
    }

    #[test]
    fn a_line_that_is_cut_off_is_none() {
        let whole = line(b"sh", "S", 1);
        let last = whole.windows(4).position(|four| four == b"4711").expect("its start");
        for length in 0..last {
            assert_eq!(ProcStat::parse(&whole[..length]), None, "{length} bytes");
        }
        assert_eq!(ProcStat::parse(b"42 )sh( S 7 8 9"), None);
    }

    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic() {
        let time = Duration::from_millis(200);
        bolero::check!().with_test_time(time).with_type::<(Vec<u8>, u16)>().for_each(
            |(bytes, threads)| {
                let _any = ProcStat::parse(bytes);
                let stat = parsed(bytes, "Z", u32::from(*threads));
                assert_eq!((stat.is_dead(), stat.group), (*threads <= 1, 8), "{bytes:?}");
            },
        );
    }
}
