//! Faults that a test injects into commits.

/// Where a fault can strike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// Before anything is decided.
    Begin,
    /// When everything is decided and nothing is visible yet.
    Commit,
    /// When it is visible and nobody was told.
    Committed,
}

/// What happens there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fate {
    /// Nothing.
    #[default]
    Proceed,
    /// Nothing of it happened, and the caller is told so. After the commit it is too late for
    /// that, and the reply is lost instead.
    Abort,
    /// It happens, and the caller does not learn of it; hints are lost too.
    LoseReply,
}

/// Says what happens to each request.
pub trait Faults: Send + Sync {
    /// Asked at every point of every request.
    fn at(&self, point: Point) -> Fate;

    /// May the request that has begun be aborted at its commit? Rows are copied first if so.
    fn may_abort(&self) -> bool {
        true
    }
}
