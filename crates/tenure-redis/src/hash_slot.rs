//! Which slot of a Cluster a key is in, and a tag for each slot.

/// How many slots a Cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The digits of tags.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The slot of a key.
pub(crate) fn slot_of(key: &str) -> u16 {
    crc16(hashed(key).as_bytes()) % SLOTS
}

/// What Cluster hashes of a key: what stands between the first `{` and the next `}`, unless that
/// is nothing; then all of it.
pub(crate) fn hashed(key: &str) -> &str {
    tag(key).unwrap_or(key)
}

/// The hash tag of a key, if it has one that counts.
pub(crate) fn tag(key: &str) -> Option<&str> {
    let (tag, _) = key.split_once('{')?.1.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// A tag that falls into this slot: the same one for everybody who asks.
pub(crate) fn tag_for(slot: u16) -> String {
    let mut number: u32 = 0;
    loop {
        let tag = digits(number);
        // Every slot has one among the first few hundred thousand numbers; a test looks at many.
        if crc16(tag.as_bytes()) % SLOTS == slot {
            return tag;
        }
        number = number.wrapping_add(1);
    }
}

fn digits(mut number: u32) -> String {
    let mut text = String::new();
    loop {
        text.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
        if number == 0 {
            return text;
        }
    }
}

/// CRC-16 with the polynomial 0x1021, from 0: what Redis calls its hash.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc: u16 = 0;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `CLUSTER KEYSLOT` answers.
    #[test]
    fn slots_are_those_of_redis() {
        for (key, slot) in
            [("foo", 12_182), ("{user1000}.following", 3_443), ("123456789", 12_739), ("", 0)]
        {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!(hashed("a{}b"), "a{}b");
        assert_eq!(hashed("a{b}{c}"), "b");
        assert_eq!(hashed("{{a}}"), "{a");
    }

    #[test]
    fn every_slot_has_a_tag() {
        for slot in (0..SLOTS).step_by(97).chain([SLOTS - 1]) {
            let tag = tag_for(slot);
            assert_eq!(slot_of(&format!("x:{{{tag}}}")), slot);
        }
    }
}
