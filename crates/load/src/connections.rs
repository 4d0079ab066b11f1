//! How connections come to be, whatever they speak: opened in the background, and tried again while
//! they are needed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::spawn_local;

use super::desk::Desk;
use super::record::Ending;

/// Before a connection that failed is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// The connections of one thread.
pub(super) trait Connections: Sized + 'static {
    /// Whose requests they carry.
    fn desk(&self) -> &Desk;

    /// How many are being opened.
    fn opening(&self) -> &Cell<usize>;

    /// Opens a connection and puts it to work, or says why it cannot.
    async fn connect(self: &Rc<Self>) -> Result<(), String>;

    /// Opens a connection; whether it could.
    async fn open(self: &Rc<Self>) -> bool {
        let Err(reason) = self.connect().await else { return true };
        tokio::time::sleep(PAUSE).await;
        // One request fails for it, so that all of them end.
        if let Some(job) = self.desk().next_job() {
            self.desk().finish(job, Ending::Broken(format!("cannot connect: {reason}")));
        }
        false
    }

    /// Opens one more connection in the background.
    fn grow(self: &Rc<Self>) {
        self.opening().set(self.opening().get() + 1);
        let connections = self.clone();
        spawn_local(async move {
            while !connections.open().await && connections.desk().wants_more() {}
            connections.opening().set(connections.opening().get() - 1);
        });
    }

    /// Waits until nothing is being opened.
    async fn opened(&self) {
        while self.opening().get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
