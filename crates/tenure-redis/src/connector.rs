//! Opens one connection to one server, and tells in words why it could not.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, PushInfo, RedisConnectionInfo};
use tenure_core::{Error, ErrorKind};
use tenure_tls::Tls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::config::RedisConfig;
use crate::deadline::pause;
use crate::error;
use crate::primary::Node;

/// After so long a handshake is suspected to be none.
const SLOW_HANDSHAKE: Duration = Duration::from_millis(150);

/// So long an address is tried before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(50);

/// How connections are opened.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<Tls>,
    theirs: Option<ConnectionInfo>,
}

/// How many connections this process has opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// An open connection. When the last clone is dropped it is closed, whatever it waits for.
#[derive(Clone)]
pub(crate) struct Conn {
    /// No other connection of this process has it.
    pub(crate) number: u64,
    pub(crate) connection: MultiplexedConnection,
    _task: Option<Arc<Task>>,
}

/// What carries a connection.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Called with the number of the connection and what its server pushes. Must not wait.
pub(crate) type OnPush = Arc<dyn Fn(u64, PushInfo) + Send + Sync>;

impl Connector {
    pub(crate) fn new(config: &RedisConfig) -> Connector {
        Connector { tls: config.tls.clone(), theirs: config.theirs.clone() }
    }

    /// Connects and logs in. `address` is for messages. What the server pushes goes to `on_push`.
    ///
    /// # Errors
    /// Why it can't be done.
    pub(crate) async fn open(
        &self,
        node: &Node,
        address: &str,
        login: &RedisConnectionInfo,
        on_push: Option<OnPush>,
    ) -> Result<Conn, Error> {
        // Deadlines are ours: the driver's own would leave the connection in use.
        let mut config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        if let Some(on_push) = on_push {
            config = config.set_push_sender(move |push| {
                on_push(number, push);
                Ok::<(), Infallible>(())
            });
        }
        if let Some(theirs) = &self.theirs {
            let opened = async {
                let client = Client::open(theirs.clone().set_redis_settings(login.clone()))?;
                client.get_multiplexed_async_connection_with_config(&config).await
            };
            let connection = opened.await.map_err(|error| error::from_login(address, error))?;
            return Ok(Conn { number, connection, _task: None });
        }
        let stream = tcp(node).await.map_err(|error| error::from_io(address, &error))?;
        let Some(tls) = &self.tls else {
            return match set_up(number, login, stream, config).await {
                Ok(conn) => Ok(conn),
                Err(error) => Err(self.explained(node, address, error).await),
            };
        };
        let stream = tokio::select! {
            stream = tls.connect(&node.host, stream) => {
                stream.map_err(|error| error::from_handshake(address, &error))?
            }
            () = answers_plainly(node) => return Err(error::without_tls(address)),
        };
        // A server that does not like our certificate says so after the handshake.
        set_up(number, login, stream, config).await.map_err(|error| match alert(&error) {
            Some(alert) if alert == "CertificateRequired" => error::wants_certificate(address),
            Some(alert) => error::refuses_certificate(address, &alert),
            None => error::from_login(address, error),
        })
    }

    /// A server that hangs up on plain words may be one that wants TLS.
    async fn explained(&self, node: &Node, address: &str, error: redis::RedisError) -> Error {
        let hung_up = error.is_io_error() || error.is_connection_dropped();
        let unreadable = error.kind() == redis::ErrorKind::Parse;
        if (hung_up || unreadable)
            && let Ok(stream) = tcp(node).await
            && Tls::is_spoken(&node.host, stream).await
        {
            return error::new(
                ErrorKind::Config,
                format!("{address} speaks TLS; write rediss:// instead of redis://"),
            )
            .caused_by(error);
        }
        error::from_login(address, error)
    }
}

/// What a TLS server said when it hung up. The driver passes on the words only.
fn alert(error: &redis::RedisError) -> Option<String> {
    let text = error.to_string();
    let (_, alert) = text.split_once("received fatal alert: ")?;
    alert.split(|letter: char| !letter.is_alphanumeric()).next().map(str::to_owned)
}

/// Ends if a server that does not get on with a handshake answers to plain words. Redis waits for
/// the end of what it takes for a command, and would say nothing.
async fn answers_plainly(node: &Node) {
    pause(SLOW_HANDSHAKE).await;
    let answer = async {
        let mut stream = tcp(node).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    match answer.await {
        Ok(b'+' | b'-') => {}
        _ => std::future::pending().await,
    }
}

async fn tcp(node: &Node) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host((node.host.as_str(), node.port)).await?.collect();
    let stream = first_to_connect(&addresses).await?;
    // A renewal is small, and must not wait for more to be sent with it.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Tries the addresses of a host side by side, each a little after the one before it. One that
/// does not answer must not use up the time of those that do.
async fn first_to_connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut tries = FuturesUnordered::new();
    let mut trouble = None;
    for address in addresses {
        tries.push(TcpStream::connect(*address));
        match timeout(HEAD_START, tries.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => trouble = Some(error),
            Ok(None) | Err(_) => {}
        }
    }
    while let Some(tried) = tries.next().await {
        match tried {
            Ok(stream) => return Ok(stream),
            Err(error) => trouble = Some(error),
        }
    }
    Err(trouble.unwrap_or_else(|| io::Error::other("its name leads to no address")))
}

async fn set_up<S>(
    number: u64,
    login: &RedisConnectionInfo,
    stream: S,
    config: AsyncConnectionConfig,
) -> redis::RedisResult<Conn>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (connection, carry) = MultiplexedConnection::new_with_config(login, stream, config).await?;
    let task = Handle::current().spawn(carry).abort_handle();
    Ok(Conn { number, connection, _task: Some(Arc::new(Task(task))) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_connection_sends_at_once() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = tcp(&Node { host: "127.0.0.1".to_owned(), port }).await.unwrap();
        assert!(stream.nodelay().unwrap());
    }

    /// One that takes no connections: they are neither answered nor refused.
    struct Silent {
        address: SocketAddr,
        _listener: std::net::TcpListener,
        _queue: Vec<std::net::TcpStream>,
    }

    fn silent() -> Silent {
        let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        // Until its queue is full.
        while let Ok(stream) =
            std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))
        {
            queue.push(stream);
            assert!(queue.len() < 10_000, "its queue has no end");
        }
        Silent { address, _listener: listener, _queue: queue }
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_does_not_use_up_the_time() {
        let silent = silent();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        for addresses in [vec![silent.address, good], vec![silent.address, silent.address, good]] {
            let connected = first_to_connect(&addresses);
            let connected = tokio::time::timeout(Duration::from_secs(3), connected).await;
            assert_eq!(connected.expect("in time").unwrap().peer_addr().unwrap(), good);
        }
    }

    #[tokio::test]
    async fn an_address_that_refuses_costs_no_time_and_the_last_refusal_is_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
        let stream = first_to_connect(&[closed, closed, closed, good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        let error = first_to_connect(&[closed, closed]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(first_to_connect(&[]).await.is_err());
    }

    /// Answers every connection by quoting what it was sent, as servers do that do not know a
    /// command.
    fn quoting_server(code: &'static str) -> Node {
        use std::io::{Read as _, Write as _};

        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut bytes) = (stream.unwrap(), [0; 4096]);
                let count = stream.read(&mut bytes).unwrap_or(0);
                let quoted = String::from_utf8_lossy(&bytes[..count]).replace("\r\n", "' '");
                let answer = format!("-{code} with args beginning with: '{quoted}'\r\n");
                let _gone = stream.write_all(answer.repeat(4).as_bytes());
            }
        });
        Node { host: "127.0.0.1".to_owned(), port }
    }

    #[tokio::test]
    async fn a_server_that_quotes_the_login_is_not_quoted() {
        use redis::ProtocolVersion::{RESP2, RESP3};

        let connector = Connector { tls: None, theirs: None };
        for code in ["ERR unknown command,", "NOPERM no,", "WHAT is this,", "ERR odd,", "ERR AUTH"]
        {
            let node = quoting_server(code);
            for protocol in [RESP2, RESP3] {
                let login = RedisConnectionInfo::default().set_protocol(protocol);
                let login = login.set_username("app").set_password("hunter2").set_db(3);
                let opened = connector.open(&node, "redis://h", &login, None).await;
                let Err(error) = opened else { panic!("{code}") };
                let mut shown = format!("{error} {error:?}");
                let mut source = std::error::Error::source(&error);
                while let Some(inner) = source {
                    shown = format!("{shown} {inner} {inner:?}");
                    source = inner.source();
                }
                assert!(!shown.contains("hunter2"), "{code} {protocol:?}: {shown}");
            }
        }
    }
}
