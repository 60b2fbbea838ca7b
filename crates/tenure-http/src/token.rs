//! The token that calls which change something need, and how often one may be guessed.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tenure::{BootClock, Error, ErrorKind, Time};

/// How many guesses a peer has at once, and how long it waits for another one.
const GUESSES: u32 = 10;
const GUESS_EVERY: Duration = Duration::from_secs(1);
/// How many peers are told apart; the guesses of all others are counted as one peer's.
const PEERS_MAX: usize = 1024;

/// A secret that whoever may change something knows. It is compared in constant time and never
/// shown.
///
/// # Examples
/// ```
/// use tenure_http::Token;
///
/// let token = Token::new("correct horse battery staple")?;
/// assert!(token.matches("correct horse battery staple"));
/// assert!(!token.matches("correct horse"));
/// assert_eq!(format!("{token:?}"), "Token(***)");
/// assert!(Token::new("guess me").is_err());
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// The shortest token, in bytes.
    pub const MIN_BYTES: usize = 16;

    /// A token of at least 16 printable characters.
    ///
    /// # Errors
    /// `Config` if it is shorter, or can't stand in a header.
    pub fn new(secret: &str) -> Result<Token, Error> {
        if secret.len() < Token::MIN_BYTES {
            return Err(Error::config(format!(
                "the token has {} bytes; give it at least {}, from a random source",
                secret.len(),
                Token::MIN_BYTES
            )));
        }
        if !secret.bytes().all(|byte| (b' '..=b'~').contains(&byte)) || secret.trim() != secret {
            return Err(Error::config(
                "the token has characters that can't stand in a header; use letters and digits",
            ));
        }
        Ok(Token(hash(secret)))
    }

    /// The token in a file, without the line's end.
    ///
    /// # Errors
    /// `Config` if the file can't be read, can be read by everybody, or holds no token.
    pub fn from_file(path: &Path) -> Result<Token, Error> {
        use std::os::unix::fs::PermissionsExt as _;

        let shown = path.display();
        let cannot = |error: std::io::Error| {
            Error::config(format!("the token file {shown} can't be read: {error}"))
        };
        let mode = fs::metadata(path).map_err(cannot)?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(Error::config(format!(
                "everybody on this machine may read the token file {shown}; chmod it to 0600"
            )));
        }
        let text = fs::read_to_string(path).map_err(cannot)?;
        let secret = text.trim_end_matches(['\r', '\n']);
        Token::new(secret)
            .map_err(|error| Error::new(ErrorKind::Config, format!("{shown}: {error}")))
    }

    /// Whether this is the secret. Takes as long whatever is given: hashes of one length are
    /// compared, all of them.
    pub fn matches(&self, given: &str) -> bool {
        self.0.ct_eq(&hash(given)).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Counts wrong guesses of each peer.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<HashMap<Option<IpAddr>, Bucket>>);

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    since: Time,
}

impl Guesses {
    /// Whether this peer may try a token now.
    pub(crate) fn may_try(&self, peer: Option<IpAddr>) -> bool {
        self.may_try_at(peer, BootClock::time())
    }

    fn may_try_at(&self, peer: Option<IpAddr>, now: Time) -> bool {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bucket(&mut peers, peer, now).left > 0
    }

    /// It tried a wrong one.
    pub(crate) fn wrong(&self, peer: Option<IpAddr>) {
        self.wrong_at(peer, BootClock::time());
    }

    fn wrong_at(&self, peer: Option<IpAddr>, now: Time) {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = bucket(&mut peers, peer, now);
        bucket.left = bucket.left.saturating_sub(1);
    }
}

fn bucket(
    peers: &mut HashMap<Option<IpAddr>, Bucket>,
    peer: Option<IpAddr>,
    now: Time,
) -> &mut Bucket {
    let refilled = |bucket: &Bucket| {
        let more = (now - bucket.since).as_nanos() / GUESS_EVERY.as_nanos();
        u32::try_from(more).unwrap_or(GUESSES)
    };
    if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
        peers.retain(|_, bucket| bucket.left.saturating_add(refilled(bucket)) < GUESSES);
    }
    let key = if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) { None } else { peer };
    let bucket = peers.entry(key).or_insert(Bucket { left: GUESSES, since: now });
    let more = refilled(bucket);
    if more > 0 {
        bucket.left = bucket.left.saturating_add(more).min(GUESSES);
        bucket.since = now;
    }
    bucket
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(Ipv4Addr::new(127, 0, 0, last).into())
    }

    #[test]
    fn a_peer_that_guesses_has_to_wait_and_others_do_not() {
        let (guesses, now) = (Guesses::default(), Time::from_nanos(5));
        for _ in 0..GUESSES {
            assert!(guesses.may_try_at(peer(1), now));
            guesses.wrong_at(peer(1), now);
        }
        assert!(!guesses.may_try_at(peer(1), now));
        assert!(guesses.may_try_at(peer(2), now));
        let later = now + GUESS_EVERY;
        assert!(guesses.may_try_at(peer(1), later), "one more after a second");
        guesses.wrong_at(peer(1), later);
        assert!(!guesses.may_try_at(peer(1), later));
    }

    #[test]
    fn many_peers_share_one_count_instead_of_filling_the_memory() {
        let (guesses, now) = (Guesses::default(), Time::from_nanos(5));
        for number in 0..10_000_u32 {
            guesses.wrong_at(Some(Ipv4Addr::from(number).into()), now);
        }
        assert!(guesses.0.lock().unwrap().len() <= PEERS_MAX + 1);
        assert!(!guesses.may_try_at(Some(Ipv4Addr::from(20_000).into()), now));
    }

    #[test]
    fn a_token_comes_from_a_file_that_is_not_for_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "0123456789abcdef0123\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Token::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("chmod it to 0600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Token::from_file(&path).unwrap().matches("0123456789abcdef0123"));
        fs::write(&path, "short\n").unwrap();
        let error = Token::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("at least 16"), "{error}");
        assert!(!error.contains("short"), "the secret is not told: {error}");
        let gone = Token::from_file(&dir.path().join("gone")).unwrap_err().to_string();
        assert!(gone.contains("can't be read"), "{gone}");
    }
}
