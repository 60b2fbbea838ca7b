//! The proxy against a real server that echoes, one client for each lane.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use tenure::BootClock;

use super::*;

/// Far more than loopback takes.
const LONG: Duration = Duration::from_secs(10);
/// Long enough for anything that would arrive at once.
const SHORT: Duration = Duration::from_millis(150);

/// A server that sends back what it gets, and a proxy for two candidates before it.
fn proxy() -> Proxy {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut piece = [0; 64];
                while let Ok(read @ 1..) = client.read(&mut piece) {
                    if client.write_all(&piece[..read]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let url = format!("redis://127.0.0.1:{port}");
    let route = crate::route::Route::new(&url, 1, crate::route::UrlStyle::Plain).unwrap();
    Proxy::start(Arc::new(BootClock), 2, route.hosts().unwrap()).unwrap()
}

fn client(proxy: &Proxy, lane: usize) -> TcpStream {
    TcpStream::connect(proxy.addresses(lane)[0]).unwrap()
}

/// What comes back within a time; `None` if nothing does.
fn echo(client: &mut TcpStream, within: Duration) -> Option<Result<u8, ErrorKind>> {
    client.set_read_timeout(Some(within)).unwrap();
    let mut byte = [0];
    match client.read(&mut byte) {
        Ok(0) => Some(Err(ErrorKind::UnexpectedEof)),
        Ok(_) => Some(Ok(byte[0])),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => Some(Err(error.kind())),
    }
}

#[track_caller]
fn assert_passes(client: &mut TcpStream, byte: u8) {
    client.write_all(&[byte]).unwrap();
    assert_eq!(echo(client, LONG), Some(Ok(byte)));
}

const BOTH: LinkState = LinkState::Held { requests: true, replies: true };

#[test]
fn what_is_cut_is_closed_and_stays_so_until_it_is_open_again() {
    let proxy = proxy();
    let (mut one, mut other) = (client(&proxy, 0), client(&proxy, 1));
    assert_passes(&mut one, 1);
    assert_passes(&mut other, 1);
    proxy.set(0, LinkState::Cut);
    assert!(matches!(echo(&mut one, LONG), Some(Err(_))));
    let mut again = client(&proxy, 0);
    assert!(matches!(echo(&mut again, LONG), Some(Err(_))), "new ones are closed too");
    assert_passes(&mut other, 2);
    proxy.set(0, LinkState::Open);
    assert_passes(&mut client(&proxy, 0), 3);
}

#[test]
fn what_is_held_back_arrives_late_and_nobody_is_told() {
    let proxy = proxy();
    let mut one = client(&proxy, 0);
    assert_passes(&mut one, 1);
    for way in [
        BOTH,
        LinkState::Held { requests: true, replies: false },
        LinkState::Held { requests: false, replies: true },
    ] {
        proxy.set(0, way);
        one.write_all(&[2]).unwrap();
        assert_eq!(echo(&mut one, SHORT), None, "{way:?}");
        proxy.set(0, LinkState::Open);
        assert_eq!(echo(&mut one, LONG), Some(Ok(2)), "{way:?}");
    }
}

#[test]
fn a_connection_that_is_made_while_all_is_held_back_is_of_use_later() {
    let proxy = proxy();
    proxy.set(0, BOTH);
    let mut one = client(&proxy, 0);
    one.write_all(&[7]).unwrap();
    assert_eq!(echo(&mut one, SHORT), None);
    proxy.set(0, LinkState::Open);
    assert_eq!(echo(&mut one, LONG), Some(Ok(7)));
}

#[test]
fn what_is_slow_arrives_in_order_and_not_before_its_time() {
    let proxy = proxy();
    let mut one = client(&proxy, 0);
    assert_passes(&mut one, 1);
    let (requests, replies) = (SHORT, SHORT);
    proxy.set(0, LinkState::Slow { requests, replies });
    let sent = BootClock::time();
    for byte in [2, 3, 4] {
        one.write_all(&[byte]).unwrap();
    }
    for byte in [2, 3, 4] {
        assert_eq!(echo(&mut one, LONG), Some(Ok(byte)));
    }
    assert!(BootClock::time() - sent >= SHORT * 2);
}

#[test]
fn a_reset_is_one_and_new_connections_are_welcome() {
    let proxy = proxy();
    let (mut one, mut other) = (client(&proxy, 0), client(&proxy, 1));
    assert_passes(&mut one, 1);
    assert_passes(&mut other, 1);
    proxy.reset(0);
    assert_eq!(echo(&mut one, LONG), Some(Err(ErrorKind::ConnectionReset)));
    assert_passes(&mut other, 2);
    assert_passes(&mut client(&proxy, 0), 3);
}

#[test]
fn the_doors_are_shut_with_the_proxy() {
    let proxy = proxy();
    let address = proxy.addresses(0)[0];
    let mut one = client(&proxy, 0);
    assert_passes(&mut one, 1);
    drop(proxy);
    assert!(matches!(echo(&mut one, LONG), Some(Err(_))));
    let end = BootClock::time() + LONG;
    while TcpStream::connect(address).is_ok() {
        assert!(BootClock::time() < end);
    }
}
