//! The body of a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

use crate::events::Subscription;

/// Frames as they come, until the hub lets go of the listener.
pub(crate) struct EventBody {
    first: Option<Bytes>,
    rest: mpsc::Receiver<Bytes>,
}

impl From<Subscription> for EventBody {
    fn from(subscription: Subscription) -> EventBody {
        EventBody { first: Some(subscription.first), rest: subscription.rest }
    }
}

impl Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.rest.poll_recv(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }
}
