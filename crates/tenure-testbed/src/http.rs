//! A client that does one request on one connection.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// What follows its head.
    pub body: String,
}

impl Answer {
    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A plain GET.
pub fn get(at: SocketAddr, path: &str) -> io::Result<Answer> {
    request(at, "GET", path, "", "")
}

/// A request with these headers, each with its line break.
pub fn request(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_nodelay(true)?;
    stream.write_all(message(method, path, headers, body).as_bytes())?;
    read(stream)
}

/// A request through a socket file.
pub fn over_unix(socket: &Path, method: &str, path: &str) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(message(method, path, "", "").as_bytes())?;
    read(stream)
}

fn message(method: &str, path: &str, headers: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn read(mut stream: impl io::Read) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        let count = stream.read(&mut part)?;
        bytes.extend_from_slice(&part[..count]);
        // Some servers keep the connection all the same.
        if count == 0 || is_whole(&bytes) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let chunked = head.lines().any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
    let body = if chunked { without_chunks(body) } else { body.to_owned() };
    Ok(Answer { status, body })
}

/// A body that came in pieces, each after a line with its length.
fn without_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((length, more)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap_or(0);
        let Some(piece) = more.get(..length).filter(|piece| !piece.is_empty()) else { break };
        body += piece;
        rest = more[length..].trim_start_matches("\r\n");
    }
    body
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let head_bytes = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0) + 4;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_some_and(|length| bytes.len() >= head_bytes + length)
}
