//! Resources that a workflow holds while it is in memory: opened again on every resume, closed in
//! reverse order when the function ends or is let go. Nothing of them is recorded.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Cx;
use super::shared::Shared;

pin_project! {
    /// A resource being opened.
    #[must_use = "it does nothing unless awaited"]
    pub struct Resource<Fut> {
        #[pin]
        open: Fut,
        opening: Opening,
    }
}

impl<Fut> std::fmt::Debug for Resource<Fut> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Resource")
    }
}

struct Opening {
    shared: Arc<Shared>,
    counted: bool,
}

impl Opening {
    fn count(&mut self, counted: bool) {
        if self.counted == counted {
            return;
        }
        self.counted = counted;
        let opening = &mut self.shared.lock().opening;
        *opening = if counted { *opening + 1 } else { *opening - 1 };
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.count(false);
    }
}

impl Cx {
    /// Opens something that lives in memory only, such as a connection. It is opened anew whenever
    /// the run is resumed, and dropped, last opened first, when the function returns or is let go;
    /// what must be done at its end belongs into its `Drop`. Its result must not decide which
    /// durable calls are made.
    pub fn resource<Fut: Future>(&self, open: Fut) -> Resource<Fut> {
        Resource {
            open,
            opening: Opening {
                shared: self.shared.clone(),
                counted: false,
            },
        }
    }
}

impl<Fut: Future> Future for Resource<Fut> {
    type Output = Fut::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Fut::Output> {
        let this = self.project();
        this.opening.count(true);
        if this.opening.shared.lock().rehearsing {
            return Poll::Pending;
        }
        let polled = this.open.poll(context);
        if polled.is_ready() {
            this.opening.count(false);
        }
        polled
    }
}
