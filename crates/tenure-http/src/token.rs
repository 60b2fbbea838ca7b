//! The token that calls which change something need.
//!
//! Wrong tokens are refused as often as they come, and not counted. A limit that lets the right
//! token through limits no guessing, and one that does not locks everybody out who comes from the
//! same address: behind a proxy that is everybody. What keeps a token from being guessed is its
//! length and a random source.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tenure::{Error, ErrorKind};

/// A secret of those who may change something. It is compared in constant time and never
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
    /// `Config` if the file can't be read, can be read by everybody (save on a read-only mount, as
    /// containers get their secrets), or holds no token.
    pub fn from_file(path: &Path) -> Result<Token, Error> {
        use std::os::unix::fs::PermissionsExt as _;

        let shown = path.display();
        let cannot = |error: std::io::Error| {
            Error::config(format!("the token file {shown} can't be read: {error}"))
        };
        let mode = fs::metadata(path).map_err(cannot)?.permissions().mode();
        if mode & 0o007 != 0 && !is_mounted_secret(path) {
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

/// Whether it lies on a read-only mount. That is how containers are given their secrets, with mode
/// 0444: who may read it there is up to whoever runs the container.
fn is_mounted_secret(path: &Path) -> bool {
    statvfs(path).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

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
