//! The terminal: taken over while something lives on it, and given back as it was, whatever
//! happens.
//!
//! Ctrl-C stays a signal, so that it reaches whoever started this too.

use std::io::{self, IsTerminal, Read, Write};
use std::thread;

use rustix::termios::{
    self, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize,
    tcsetattr,
};
use tokio::sync::mpsc;

use super::text::Line;

/// Standard output as a screen.
pub(super) struct Screen {
    /// How the terminal was, if keys come from it.
    before: Option<Termios>,
    colours: bool,
}

/// The other screen; no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// A frame is shown whole, by terminals that know how.
const FRAME: &str = "\x1b[?2026h\x1b[H";
const FRAME_END: &str = "\x1b[J\x1b[?2026l";

impl Screen {
    /// Takes the terminal over.
    pub(super) fn enter() -> io::Result<Self> {
        let before = if io::stdin().is_terminal() { Some(tcgetattr(io::stdin())?) } else { None };
        if let Some(before) = &before {
            let mut keys = before.clone();
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // Stopped in the background, it would leave the terminal as it is.
            keys.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        }
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let screen = Self { before, colours };
        write(ENTER)?;
        Ok(screen)
    }

    /// Keys as they come. Whatever is waited for, the thread ends with the process.
    pub(super) fn keys(&self) -> io::Result<mpsc::UnboundedReceiver<u8>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if self.before.is_some() {
            let read = move || {
                let bytes = io::stdin().lock().bytes().map_while(Result::ok);
                for byte in bytes {
                    if sender.send(byte).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().name("keys".to_owned()).spawn(read)?;
        }
        Ok(receiver)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        size()
    }

    pub(super) fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
        let (width, height) = size();
        let mut frame = FRAME.to_owned();
        for (at, line) in lines.iter().take(height).enumerate() {
            // A line feed on the last row would move everything up.
            frame += if at > 0 { "\r\n" } else { "" };
            frame += &line.coloured(width, self.colours);
            frame += "\x1b[K";
        }
        write(&(frame + FRAME_END))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = write(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(termios::Winsize { ws_col, ws_row, .. }) if ws_col > 0 && ws_row > 0 => {
            (ws_col.into(), ws_row.into())
        }
        _ => (80, 24),
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}
