//! What a subscriber says to one server: which channels it wants, and which no more.

use std::sync::Arc;

use redis::{PushKind, Value};
use tenure_core::{Error, ErrorKind};
use tokio::time::timeout_at;

use crate::cluster;
use crate::connector::Conn;
use crate::deadline::now;
use crate::error;
use crate::pool::text;
use crate::primary::Primary;
use crate::subscriber::Subscriber;

/// A connection that has subscribed to what it could.
pub(crate) struct Subscribed {
    pub(crate) conn: Conn,
    pub(crate) refused: Vec<(String, Error)>,
}

/// Connects to a server unless there is a connection, subscribes to the first channels and gives up
/// the others.
pub(crate) async fn subscribe(
    subscriber: &Arc<Subscriber>,
    task: u64,
    primary: &Primary,
    conn: Option<Conn>,
    (missing, excess): (&[String], &[String]),
) -> Result<Subscribed, Error> {
    let address = subscriber.router.name_of(primary);
    let within = subscriber.connect_timeout;
    let silent = || error::silent(&address, "subscribe", within);
    let until = now() + within;
    let mut conn = match conn {
        Some(conn) => conn,
        None => {
            let heard = subscriber.clone();
            let on_push = Arc::new(move |number, push| heard.pushed(number, &push));
            let conn = subscriber.router.connect_for_pushes(primary, on_push);
            timeout_at(until, conn).await.map_err(|_| silent())??
        }
    };
    subscriber.opened(task, conn.number, &primary.channel);
    let talk = async {
        for channel in excess {
            let _refused = confirmed(&mut conn, primary, "UNSUBSCRIBE", channel, &address).await?;
        }
        let mut refused = Vec::new();
        for channel in missing {
            let done = confirmed(&mut conn, primary, "SUBSCRIBE", channel, &address).await?;
            refused.extend(done.err().map(|error| (channel.clone(), error)));
        }
        Ok(refused)
    };
    let refused = timeout_at(until, talk).await.unwrap_or_else(|_| Err(silent()));
    match refused {
        Ok(refused) => Ok(Subscribed { conn, refused }),
        Err(error) => {
            subscriber.closed(conn.number);
            Err(error)
        }
    }
}

/// Has a server confirm one command about one channel; the inner error is its refusal.
///
/// # Errors
/// Why the connection is of no use any more.
async fn confirmed(
    conn: &mut Conn,
    primary: &Primary,
    command: &str,
    channel: &str,
    address: &str,
) -> Result<Result<(), Error>, Error> {
    let sharded = primary.in_cluster.then(|| format!("S{command}"));
    for name in sharded.iter().map(String::as_str).chain([command]) {
        let request = redis::cmd(name).arg(channel).to_owned();
        let answer = conn.connection.send_packed_command(&request).await;
        match answer.map_err(|error| error::from_driver(address, error))? {
            // A server before 7.0 has no sharded channels.
            Value::ServerError(error) if name != command && is_unknown_command(&error) => {}
            // Its slot is elsewhere.
            moved if primary.in_cluster && cluster::redirect(&moved).is_some() => {
                return Ok(Err(error::new(ErrorKind::Unavailable, error::in_flux(address))));
            }
            Value::ServerError(error) => return Ok(Err(error::from_server(address, &error))),
            Value::Push { kind, data }
                if kind_of(&kind) == Some(command)
                    && data.first().is_some_and(|named| text(named) == channel) =>
            {
                return Ok(Ok(()));
            }
            // A slot that moves away takes its channels off unasked, and that looks like an answer.
            _ => break,
        }
    }
    Err(error::new(ErrorKind::Unavailable, error::in_flux(address)))
}

/// The command that a push confirms.
fn kind_of(kind: &PushKind) -> Option<&'static str> {
    match kind {
        PushKind::Subscribe | PushKind::SSubscribe => Some("SUBSCRIBE"),
        PushKind::Unsubscribe | PushKind::SUnsubscribe => Some("UNSUBSCRIBE"),
        _ => None,
    }
}

fn is_unknown_command(error: &redis::ServerError) -> bool {
    error.details().is_some_and(|detail| detail.starts_with("unknown command"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;

    use redis::{ProtocolVersion, RedisConnectionInfo};

    use super::*;
    use crate::config::RedisConfig;
    use crate::connector::Connector;
    use crate::primary::Node;

    /// A server that answers each command about a channel with this.
    fn server(answer: fn(command: &str, channel: &str) -> String) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            loop {
                let number = |reader: &mut BufReader<_>| {
                    let mut line = String::new();
                    reader.read_line(&mut line).ok()?;
                    line.trim_end().get(1..)?.parse::<usize>().ok()
                };
                let Some(count) = number(&mut reader) else { return };
                let mut words = Vec::new();
                for _ in 0..count {
                    let mut word = vec![0; number(&mut reader).unwrap() + 2];
                    reader.read_exact(&mut word).unwrap();
                    words.push(String::from_utf8(word).unwrap().trim_end().to_owned());
                }
                let answer = match words[0].as_str() {
                    "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
                    "CLIENT" => "+OK\r\n".to_owned(),
                    command => answer(command, &words[1]),
                };
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Node { host: "127.0.0.1".to_owned(), port }
    }

    fn push(kind: &str, channel: &str) -> String {
        format!(">3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:1\r\n", kind.len(), channel.len())
    }

    async fn subscribes(node: Node) -> Result<Result<(), Error>, Error> {
        let connector = Connector::new(&RedisConfig::from_url("redis://h").unwrap());
        let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        let mut conn = connector.open(&node, "h", &login, None).await.unwrap();
        let (marker, channel) = (String::new(), String::new());
        let primary = Primary { node, marker, channel, in_cluster: true };
        confirmed(&mut conn, &primary, "SUBSCRIBE", "c", "h").await
    }

    #[tokio::test]
    async fn a_cluster_before_7_has_plain_channels() {
        let node = server(|command, channel| match command {
            "SUBSCRIBE" => push("subscribe", channel),
            _ => format!("-ERR unknown command '{command}'\r\n"),
        });
        subscribes(node).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_channel_that_was_taken_off_confirms_no_other() {
        let node = server(|_, _| push("sunsubscribe", "another"));
        assert_eq!(subscribes(node).await.unwrap_err().kind(), ErrorKind::Unavailable);
        let node = server(|_, channel| push("sunsubscribe", channel));
        assert_eq!(subscribes(node).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn a_slot_that_is_elsewhere_is_looked_for_again() {
        let node = server(|_, _| "-MOVED 1 127.0.0.1:1\r\n".to_owned());
        assert!(subscribes(node).await.unwrap().unwrap_err().is_retryable());
    }
}
