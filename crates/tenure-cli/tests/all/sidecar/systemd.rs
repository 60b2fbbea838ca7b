//! What systemd is told, and the sockets that it opens.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{eventually, tenure};
use crate::support::{Place, Process};
use tenure_testbed::http;

/// What came on the socket, within a generous limit.
fn told(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 1024];
    let count = socket.recv(&mut bytes).expect("systemd is told something");
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

#[test]
fn it_tells_that_it_is_ready_alive_and_stopping() {
    let place = Place::new();
    let path = place.path("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut command = place.command(&["serve", "-e", "job", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut process = Process::new(&mut command);
    assert!(told(&socket).starts_with("READY=1"));
    assert_eq!(told(&socket), "WATCHDOG=1");
    assert_eq!(told(&socket), "WATCHDOG=1");
    process.signal(Signal::TERM);
    eventually("it says that it stops", || told(&socket).starts_with("STOPPING=1").then_some(()));
    assert_eq!(process.code(), 0);
}

#[test]
fn it_listens_on_the_socket_that_it_was_given() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    // As systemd does: the socket is number 3, and the variables name the process.
    let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" serve -e job";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(tenure()).stdin(Stdio::from(OwnedFd::from(listener)));
    for (name, value) in place.command(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut process = Process::new(&mut command);
    process.line(&format!("listening on http://{at}"));
    eventually("it answers there", || (http::get(at, "/leader").ok()?.status == 200).then_some(()));
    process.signal(Signal::TERM);
    assert_eq!(process.code(), 0);
}
