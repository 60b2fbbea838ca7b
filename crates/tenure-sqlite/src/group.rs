//! Whether a process group is empty, also where nobody reaps the dead.
//!
//! The kernel answers for a whole group at once, but counts zombies in. Under a pid 1 that does not
//! reap (many containers) a dead group then never looks empty. So members that have exited are told
//! apart by a look at `/proc`, where that look can be believed.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

/// Whether every process of the group has exited, beyond doubt.
pub(crate) fn is_empty(group: i32) -> bool {
    // 1 would ask about every process there is.
    let Some(pid) = Some(group).filter(|group| *group > 1).and_then(Pid::from_raw) else {
        return false;
    };
    // A process could be missed only if it was born behind the place that is being looked at, and
    // pids are given out in rising order: that takes a wrap of all pids in between. Two looks in a
    // row rule it out.
    test_kill_process_group(pid) == Err(Errno::SRCH)
        || (sees_everybody() && only_zombies(group) && only_zombies(group))
}

/// Whether the group has members and all of them have exited. A pid may be of another program by
/// now; then it is of another group, or alive.
fn only_zombies(group: i32) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return false };
    let mut seen = false;
    for entry in entries {
        let Ok(entry) = entry else { return false };
        let name = entry.file_name();
        if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        match fs::read(entry.path().join("stat")) {
            Ok(stat) => match Member::parse(&String::from_utf8_lossy(&stat)) {
                Some(member) if member.group != group => {}
                Some(member) if member.has_exited => seen = true,
                _ => return false,
            },
            // Gone between the two calls.
            Err(error) if is_gone(&error) => {}
            Err(_) => return false,
        }
    }
    seen
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

struct Member {
    group: i32,
    has_exited: bool,
}

impl Member {
    /// State, group and number of threads: fields 3, 5 and 20. A process whose first thread has
    /// ended looks like a zombie while its other threads work on.
    fn parse(stat: &str) -> Option<Member> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let threads: i64 = fields.get(20 - 3)?.parse().ok()?;
        let state = *fields.first()?;
        let has_exited = matches!(state, "Z" | "X") && threads <= 1;
        Some(Member { group: fields.get(5 - 3)?.parse().ok()?, has_exited })
    }
}

/// Whether `/proc` shows the processes of all users.
fn sees_everybody() -> bool {
    fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| !hides(&mounts))
}

fn hides(mountinfo: &str) -> bool {
    let mut proc = mountinfo.lines().filter(|line| line.contains(" - proc ")).peekable();
    proc.peek().is_none()
        || proc.any(|line| line.contains("hidepid=") && !line.contains("hidepid=0"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use rustix::process::{Signal, WaitIdOptions, kill_process_group};

    use super::*;

    struct Group(Child);

    impl Group {
        fn start(script: &str) -> Group {
            let mut command = Command::new("sh");
            Group(command.args(["-c", script]).process_group(0).spawn().unwrap())
        }

        fn id(&self) -> i32 {
            self.0.id() as i32
        }

        fn kill(&self) {
            let _ = kill_process_group(Pid::from_raw(self.id()).unwrap(), Signal::KILL);
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            self.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_group_of_the_living_is_not_empty_and_one_of_zombies_is() {
        let mut group = Group::start("exec sleep 600");
        assert!(!is_empty(group.id()));
        group.kill();
        // Waits for the end and leaves the zombie where it is.
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let pid = Pid::from_raw(group.id()).unwrap();
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), flags).unwrap();
        assert!(test_kill_process_group(pid).is_ok(), "the kernel counts the zombie");
        assert!(is_empty(group.id()), "who has exited works no more");
        group.0.wait().unwrap();
        assert!(is_empty(group.id()));
    }

    #[test]
    fn one_living_member_among_zombies_is_enough() {
        let group = Group::start("sleep 600 & exec sh -c 'exit 0'");
        let pid = Pid::from_raw(group.id()).unwrap();
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), flags).unwrap();
        assert!(!is_empty(group.id()), "its leader is a zombie, its sleeper lives");
    }

    #[test]
    fn a_first_thread_that_has_ended_is_no_proof() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) b) {state} 1 42 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 4711")
        };
        let member = |state, threads| Member::parse(&stat(state, threads)).unwrap();
        assert!(member("Z", 1).has_exited && member("Z", 0).has_exited);
        assert!(!member("Z", 2).has_exited && !member("S", 1).has_exited);
        assert_eq!(member("Z", 1).group, 42);
        assert!(Member::parse("7 (a").is_none());
    }

    #[test]
    fn a_proc_that_hides_others_is_not_believed() {
        let line = "25 30 0:23 / /proc rw,nosuid shared:5 - proc proc rw";
        assert!(!hides(line) && !hides(&format!("{line},hidepid=0")));
        assert!(hides(&format!("{line},hidepid=2")) && hides(&format!("{line},hidepid=invisible")));
        assert!(hides("no proc at all"));
    }

    #[test]
    fn numbers_that_name_no_group_are_never_empty() {
        assert!(!is_empty(1) && !is_empty(0) && !is_empty(-5));
    }

    #[test]
    fn lines_of_proc_are_read_or_not_whatever_stands_in_them() {
        let time = std::time::Duration::from_millis(200);
        bolero::check!().with_test_time(time).with_type::<(String, i32)>().for_each(
            |(text, group)| {
                let (_any, _other) = (Member::parse(text), hides(text));
                let stat = format!("7 ({text}) Z 1 {group} {}1 0", "1 ".repeat(14));
                let member = Member::parse(&stat).unwrap();
                assert!(member.group == *group && member.has_exited, "{stat:?}");
            },
        );
    }
}
