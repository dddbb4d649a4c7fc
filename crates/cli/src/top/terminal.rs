//! The terminal while it is drawn on: another screen, without a cursor, that hears keys at once. It
//! is given back as it was, whatever happens: by a key, a signal, an error or a panic.

use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::exit::Result;

/// Another screen, no cursor, lines that end at its edge; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Rows where the terminal does not say.
const ROWS: usize = 24;

/// How the terminal was, while it is ours.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
/// The hook is there: one is enough.
static HOOKED: AtomicBool = AtomicBool::new(false);

/// Why it is drawn again, or not.
pub(super) enum Event {
    Time,
    Resized,
    Leave,
}

pub(super) struct Terminal {
    keys: mpsc::Receiver<u8>,
    ends: [Signal; 3],
    resized: Signal,
}

impl Terminal {
    pub(super) fn enter() -> Result<Terminal> {
        let ends = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        let resized = signal(SignalKind::window_change())?;
        let before = tcgetattr(io::stdin()).map_err(io::Error::from)?;
        let mut ours = before.clone();
        // Keys come one by one and unseen; Ctrl-C is a signal still, and Ctrl-Z nothing: whoever
        // is stopped cannot give the terminal back.
        ours.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        ours.special_codes[SpecialCodeIndex::VSUSP] = 0;
        *lock() = Some(before);
        hook();
        tcsetattr(io::stdin(), OptionalActions::Now, &ours).map_err(io::Error::from)?;
        let terminal = Terminal {
            keys: keys(),
            ends,
            resized,
        };
        terminal.write(ENTER)?;
        Ok(terminal)
    }

    /// Draws these lines over what is there.
    pub(super) fn show(&self, text: &str) -> Result<()> {
        let mut frame = String::from("\x1b[H");
        let rows = rows();
        for (number, line) in text.lines().take(rows).enumerate() {
            if number > 0 {
                frame.push_str("\r\n");
            }
            frame.push_str(line);
            frame.push_str("\x1b[0m\x1b[K");
        }
        frame.push_str("\x1b[J");
        self.write(&frame)
    }

    fn write(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
    }

    /// Waits for so long, or for something to happen.
    pub(super) async fn wait(&mut self, most: Duration) -> Event {
        let Terminal {
            keys,
            ends,
            resized,
        } = self;
        tokio::select! {
            () = tokio::time::sleep(most) => Event::Time,
            _ = resized.recv() => Event::Resized,
            () = leaves(keys, ends) => Event::Leave,
        }
    }

    /// Waits until somebody wants to leave.
    pub(super) async fn left(&mut self) {
        leaves(&mut self.keys, &mut self.ends).await;
    }
}

async fn leaves(keys: &mut mpsc::Receiver<u8>, [interrupt, terminate, hangup]: &mut [Signal; 3]) {
    let quits = async {
        while let Some(key) = keys.recv().await {
            if matches!(key, b'q' | b'Q') {
                return;
            }
        }
        // The terminal is gone.
    };
    tokio::select! {
        () = quits => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// As it was.
fn give_back() {
    if let Some(before) = lock().take() {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a panic says should be seen where it can be read.
fn hook() {
    if HOOKED.swap(true, Ordering::SeqCst) {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        before(panic);
    }));
}

/// A thread that reads keys for as long as there are some.
fn keys() -> mpsc::Receiver<u8> {
    let (sender, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        for key in io::stdin()
            .lock()
            .bytes()
            .map_while(std::result::Result::ok)
        {
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    keys
}

/// Rows of the terminal.
pub(super) fn rows() -> usize {
    let size = terminal_size::terminal_size();
    size.map_or(ROWS, |(_, rows)| usize::from(rows.0))
}
