//! Messages between the three processes: small packets over a socket pair.
//!
//! Packets keep their borders, so there is nothing to frame, and they carry descriptors, so a
//! process or a cgroup is named by a handle that can't come to mean another one. When one side
//! dies the other reads the end of the stream.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tenure_core::Time;

/// The most bytes and the most descriptors that one packet carries.
const BYTES: usize = 9;
const FDS: usize = 6;

/// What tenure tells its guardian.
#[derive(Debug)]
pub(super) enum Order<Fd> {
    /// Kill at this instant of `CLOCK_BOOTTIME`; `None` takes the deadline back.
    Deadline(Option<Time>),
    /// What to give back once tenure and all its work is dead: tenure's pidfd, the count of open
    /// proofs, the text of the note.
    ReleaseNote([Fd; 3]),
    /// Start the trampoline, with this as its stdin.
    Start(Fd),
    /// The cgroup's `cgroup.kill`, open for writing.
    Cgroup(Fd),
    /// Kill now.
    Kill,
}

impl<Fd: AsFd> Order<Fd> {
    /// Queues the order for the guardian; never waits for it.
    pub(super) fn send(&self, link: impl AsFd) -> Result<()> {
        let (tag, value, fds) = match self {
            // Zero means none, so the instant zero, long past, becomes the next one.
            Order::Deadline(deadline) => {
                (b'd', deadline.map_or(0, |at| at.as_nanos().max(1)), Vec::new())
            }
            Order::ReleaseNote(fds) => (b'r', 0, fds.iter().map(AsFd::as_fd).collect()),
            Order::Start(fd) => (b's', 0, vec![fd.as_fd()]),
            Order::Cgroup(fd) => (b'c', 0, vec![fd.as_fd()]),
            Order::Kill => (b'k', 0, Vec::new()),
        };
        send(link, &packed(tag, value), &fds, SendFlags::DONTWAIT)
    }
}

impl Order<OwnedFd> {
    /// The next order; `None` when tenure is gone, `WOULDBLOCK` when there is none yet.
    pub(super) fn receive(link: impl AsFd) -> Result<Option<Order<OwnedFd>>> {
        let Some(packet) = receive(link, RecvFlags::DONTWAIT)? else { return Ok(None) };
        let (tag, value) = packet.unpacked()?;
        let mut fds = packet.fds.into_iter();
        let mut fd = || fds.next().ok_or(Errno::PROTO);
        Ok(Some(match tag {
            b'd' => Order::Deadline((value != 0).then_some(Time::from_nanos(value))),
            b'r' => Order::ReleaseNote([fd()?, fd()?, fd()?]),
            b's' => Order::Start(fd()?),
            b'c' => Order::Cgroup(fd()?),
            b'k' => Order::Kill,
            _ => return Err(Errno::PROTO),
        }))
    }
}

/// What the guardian tells tenure of the main process, whose parent it is.
#[derive(Debug)]
pub(super) enum News<Fd> {
    /// It was started, and has this pid and this pidfd.
    Started(i32, Fd),
    /// It could not be started.
    NotStarted(i32),
    /// It was stopped by this signal.
    Stopped(i32),
    /// It ended, with this code in the shell's convention.
    Ended(i32),
}

impl<Fd: AsFd> News<Fd> {
    /// Queues the news; never waits.
    pub(super) fn send(&self, link: impl AsFd) -> Result<()> {
        let (tag, number, fds) = match self {
            News::Started(pid, pidfd) => (b's', *pid, vec![pidfd.as_fd()]),
            News::NotStarted(errno) => (b'n', *errno, Vec::new()),
            News::Stopped(signal) => (b't', *signal, Vec::new()),
            News::Ended(code) => (b'e', *code, Vec::new()),
        };
        let value = u64::from(number.cast_unsigned());
        send(link, &packed(tag, value), &fds, SendFlags::DONTWAIT)
    }
}

impl News<OwnedFd> {
    /// The next news; `None` when the guardian is gone, `WOULDBLOCK` when there is none yet.
    pub(super) fn receive(link: impl AsFd) -> Result<Option<News<OwnedFd>>> {
        let Some(packet) = receive(link, RecvFlags::DONTWAIT)? else { return Ok(None) };
        let (tag, value) = packet.unpacked()?;
        let number = u32::try_from(value).map_err(|_| Errno::PROTO)?.cast_signed();
        Ok(Some(match tag {
            b's' => News::Started(number, packet.fds.into_iter().next().ok_or(Errno::PROTO)?),
            b'n' => News::NotStarted(number),
            b't' => News::Stopped(number),
            b'e' => News::Ended(number),
            _ => return Err(Errno::PROTO),
        }))
    }
}

fn packed(tag: u8, value: u64) -> [u8; BYTES] {
    let mut bytes = [tag; BYTES];
    bytes[1..].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// What the trampoline tells tenure. Silence until the end of the stream means: all well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It could not join the cgroup, and goes on without.
    Unconfined(i32),
    /// It could not become the command.
    NotExecuted(i32),
}

impl Report {
    pub(super) fn send(self, link: impl AsFd) -> Result<()> {
        let (tag, errno) = match self {
            Report::Unconfined(errno) => (b'u', errno),
            Report::NotExecuted(errno) => (b'x', errno),
        };
        let mut bytes = [tag; 5];
        bytes[1..].copy_from_slice(&errno.to_le_bytes());
        send(link, &bytes, &[], SendFlags::empty())
    }

    /// The next report; `None` once the command runs, or the trampoline died.
    pub(super) fn receive(link: impl AsFd) -> Result<Option<Report>> {
        let Some(packet) = receive(link, RecvFlags::empty())? else { return Ok(None) };
        let (tag, errno) = packet.bytes.split_first().ok_or(Errno::PROTO)?;
        let errno = i32::from_le_bytes(errno.try_into().map_err(|_| Errno::PROTO)?);
        match tag {
            b'u' => Ok(Some(Report::Unconfined(errno))),
            b'x' => Ok(Some(Report::NotExecuted(errno))),
            _ => Err(Errno::PROTO),
        }
    }
}

/// Two connected ends that no child inherits unless it is handed one.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Hands descriptors over, with a byte to carry them.
pub(super) fn hand_over(link: impl AsFd, fds: &[BorrowedFd<'_>]) -> Result<()> {
    send(link, b"h", fds, SendFlags::empty())
}

/// Takes what [`hand_over`] gave; `None` when the giver is gone.
pub(super) fn take_over(link: impl AsFd) -> Result<Option<Vec<OwnedFd>>> {
    Ok(receive(link, RecvFlags::empty())?.map(|packet| packet.fds))
}

struct Packet {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Packet {
    fn unpacked(&self) -> Result<(u8, u64)> {
        let (tag, value) = self.bytes.split_first().ok_or(Errno::PROTO)?;
        Ok((*tag, u64::from_le_bytes(value.try_into().map_err(|_| Errno::PROTO)?)))
    }
}

fn send(link: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: SendFlags) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    let link = link.as_fd();
    let flags = flags | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(link, &[IoSlice::new(bytes)], &mut control, flags)).map(drop)
}

fn receive(link: impl AsFd, flags: RecvFlags) -> Result<Option<Packet>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; BYTES];
    let link = link.as_fd();
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut next = || {
        let got = retry_on_intr(|| {
            recvmsg(link, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)
        });
        got.map(|got| got.bytes)
    };
    let got = match next() {
        // The other side died with unread packets of ours. The kernel says so once, and then hands
        // out what the other side had sent before.
        Err(Errno::CONNRESET) => next(),
        got => got,
    }?;
    if got == 0 {
        return Ok(None);
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = rights.flatten().collect();
    Ok(Some(Packet { bytes: bytes[..got].to_vec(), fds }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn across(order: Order<BorrowedFd<'_>>) -> Order<OwnedFd> {
        let (ours, theirs) = pair().unwrap();
        order.send(&ours).unwrap();
        Order::receive(&theirs).unwrap().unwrap()
    }

    #[test]
    fn a_deadline_arrives_as_it_was_sent() {
        for at in [1, 5_000_000_000, u64::MAX].map(Time::from_nanos) {
            assert!(
                matches!(across(Order::Deadline(Some(at))), Order::Deadline(Some(t)) if t == at)
            );
        }
        assert!(matches!(across(Order::Deadline(None)), Order::Deadline(None)));
    }

    #[test]
    fn the_instant_zero_is_a_deadline_and_not_none() {
        let order = across(Order::Deadline(Some(Time::ZERO)));
        assert!(matches!(order, Order::Deadline(Some(t)) if t.as_nanos() == 1));
    }

    #[test]
    fn a_descriptor_arrives_with_its_order() {
        let (given, _other) = pair().unwrap();
        assert!(matches!(across(Order::Start(given.as_fd())), Order::Start(_)));
        let three = [given.as_fd(); 3];
        assert!(matches!(across(Order::ReleaseNote(three)), Order::ReleaseNote(_)));
        assert!(matches!(across(Order::Cgroup(given.as_fd())), Order::Cgroup(_)));
    }

    #[test]
    fn news_arrive_as_they_were_sent() {
        let (ours, theirs) = pair().unwrap();
        News::Started(4711, ours.as_fd()).send(&ours).unwrap();
        News::<OwnedFd>::Ended(143).send(&ours).unwrap();
        assert!(matches!(News::receive(&theirs).unwrap(), Some(News::Started(4711, _))));
        assert!(matches!(News::receive(&theirs).unwrap(), Some(News::Ended(143))));
        assert_eq!(News::receive(&theirs).unwrap_err(), Errno::WOULDBLOCK);
        drop(ours);
        assert!(News::receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn an_order_without_its_descriptor_is_an_error() {
        let (ours, theirs) = pair().unwrap();
        send(&ours, &[b's'; BYTES], &[], SendFlags::empty()).unwrap();
        assert_eq!(Order::receive(&theirs).unwrap_err(), Errno::PROTO);
        assert_eq!(Order::receive(&theirs).unwrap_err(), Errno::WOULDBLOCK);
    }

    #[test]
    fn what_was_told_before_a_death_arrives_though_orders_were_left_unread() {
        let (ours, theirs) = pair().unwrap();
        News::<OwnedFd>::Ended(0).send(&theirs).unwrap();
        Order::<OwnedFd>::Deadline(None).send(&ours).unwrap();
        drop(theirs);
        assert!(matches!(News::receive(&ours).unwrap(), Some(News::Ended(0))));
        assert!(News::receive(&ours).unwrap().is_none());
    }

    #[test]
    fn the_death_of_a_side_is_the_end_of_the_stream() {
        let (ours, theirs) = pair().unwrap();
        Report::NotExecuted(2).send(&theirs).unwrap();
        drop(theirs);
        assert_eq!(Report::receive(&ours).unwrap(), Some(Report::NotExecuted(2)));
        assert_eq!(Report::receive(&ours).unwrap(), None);
        let order = Order::<OwnedFd>::Deadline(None);
        assert_eq!(order.send(&ours).unwrap_err(), Errno::PIPE);
    }
}
