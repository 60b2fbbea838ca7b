//! A runtime for a workload whose client is async.

use std::time::Duration;

use crate::error::DrillError;
use crate::ground::Refusal;

/// A runtime for the thread that writes. It may be dropped anywhere, inside of another one too.
#[derive(Debug)]
pub struct WorkloadRuntime(Option<tokio::runtime::Runtime>);

impl WorkloadRuntime {
    /// A runtime of one thread, which is the caller's.
    ///
    /// # Errors
    /// The operating system has no descriptor left.
    pub fn new() -> Result<WorkloadRuntime, DrillError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(WorkloadRuntime(Some(runtime)))
    }

    /// Does a piece of work, if it can be done in time.
    ///
    /// # Errors
    /// What the work says, or that it took too long.
    pub fn run<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let late = || Err(Refusal::Failed("it took too long".to_owned()));
        match &self.0 {
            Some(runtime) => runtime.block_on(async {
                tokio::time::timeout(limit, work).await.unwrap_or_else(|_| late())
            }),
            None => late(),
        }
    }
}

impl Drop for WorkloadRuntime {
    fn drop(&mut self) {
        // Waiting for it is not allowed inside of another one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
