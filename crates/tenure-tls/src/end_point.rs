//! What a password is bound to, so that nobody between client and server can pass it on
//! (`tls-server-end-point` of RFC 5929): the hash of the server's certificate.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

/// `1.2.840.113549.1.1`, signatures by RSA; the last number says with which hash.
const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// `1.2.840.10045.4`, signatures by ECDSA.
const ECDSA: [u8; 6] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

/// The hash of a certificate, by the hash that it was signed with; SHA-256 for those that are weak.
/// `None` where the RFC says nothing, for Ed25519 say.
pub(crate) fn hash(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(digest(algorithm(certificate)?, certificate).as_ref().to_vec())
}

fn algorithm(certificate: &[u8]) -> Option<&'static Algorithm> {
    let (whole, _) = element(0x30, certificate)?;
    let (_to_be_signed, rest) = element(0x30, whole)?;
    let (signature, _) = element(0x30, rest)?;
    let (id, _) = element(0x06, signature)?;
    match (id.strip_prefix(&RSA), id.strip_prefix(&ECDSA)) {
        (Some([0x04 | 0x05 | 0x0b]), _) | (_, Some([0x01] | [0x03, 0x02])) => Some(&SHA256),
        (Some([0x0c]), _) | (_, Some([0x03, 0x03])) => Some(&SHA384),
        (Some([0x0d]), _) | (_, Some([0x03, 0x04])) => Some(&SHA512),
        _ => None,
    }
}

/// What is inside of an element of DER, and what comes after it.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [first, length, rest @ ..] = der else { return None };
    if *first != tag {
        return None;
    }
    // A long length says in its first byte how many bytes it has.
    let (length, rest) = match *length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long @ 0x81..=0x83 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (algorithm, length) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let made = rcgen::CertificateParams::new(vec!["h".to_owned()]).unwrap();
            let made = made.self_signed(&key).unwrap();
            assert_eq!(hash(made.der()).map(|hash| hash.len()), length);
            // Whatever is cut off, it does not panic.
            for end in 0..made.der().len() {
                let _none_or_some = hash(&made.der()[..end]);
            }
        }
    }
}
