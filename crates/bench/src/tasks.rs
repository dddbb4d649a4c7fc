//! Many tasks at once.

use tokio::task::JoinSet;

/// Waits for all of them; the first error, or panic, is the result.
pub(crate) async fn all_of<E: 'static>(mut tasks: JoinSet<Result<(), E>>) -> Result<(), E> {
    while let Some(task) = tasks.join_next().await {
        task.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    }
    Ok(())
}
