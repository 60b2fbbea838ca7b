//! Whether this process is in a container, whose files are its own.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Files that container runtimes put into each container.
const MARKS: [&str; 3] = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];

/// Variables that they set in each.
const VARIABLES: [&str; 2] = ["container", "KUBERNETES_SERVICE_HOST"];

/// Whether a container runtime says so: by a file, a variable, or a variable of process 1.
pub(crate) fn is_inside() -> bool {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    MARKS.iter().any(|path| Path::new(path).exists())
        || VARIABLES.iter().any(is_set)
        || fs::read("/proc/1/environ").is_ok_and(|environ| is_told(&environ))
}

/// Whether an environment, as `/proc` shows it, has one of the variables.
fn is_told(environ: &[u8]) -> bool {
    environ.split(|byte| *byte == 0).any(|entry| {
        VARIABLES.iter().any(|name| {
            let name = OsStr::new(name).as_encoded_bytes();
            entry.strip_prefix(name).is_some_and(|rest| rest.len() > 1 && rest[0] == b'=')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_1_of_a_container_is_told_so() {
        assert!(is_told(b"PATH=/bin\0container=lxc\0"));
        assert!(is_told(b"KUBERNETES_SERVICE_HOST=10.0.0.1\0"));
        assert!(!is_told(b"PATH=/bin\0container=\0containers=7\0"));
        assert!(!is_told(b""));
    }
}
