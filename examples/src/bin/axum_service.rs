//! A web service with a background task that runs on the leader only, and a clean shutdown.
//!
//! ```text
//! cargo run -p tenure-examples --bin axum_service
//! ```
//! It listens on a free port and prints it. `/ready` is for the load balancer, `/leader` for the
//! curious. SIGTERM or Ctrl-C: `/ready` says 503, then the task ends and the lease is given back,
//! then the process exits with 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tenure::{Election, Tenure};
use tenure_examples::{Shutdown, open_store};
use tokio::net::TcpListener;
use tokio::time::interval;

/// How long a load balancer needs to see that this instance is going.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct App {
    election: Election,
    ready: Arc<AtomicBool>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let shutdown = Shutdown::listen()?;
    let election = Election::builder("example:axum-service", open_store()?).start().await?;
    let app = App { election, ready: Arc::new(AtomicBool::new(true)) };
    let routes = Router::new()
        .route("/ready", get(ready))
        .route("/leader", get(leader))
        .with_state(app.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);

    let task = tokio::spawn({
        let election = app.election.clone();
        async move {
            election
                .lead_each(|tenure| async move {
                    background(&tenure).await;
                    Ok::<(), tenure::Error>(())
                })
                .await
        }
    });

    axum::serve(listener, routes).with_graceful_shutdown(wind_up(shutdown, app)).await?;
    task.await??;
    println!("bye");
    Ok(())
}

async fn ready(State(app): State<App>) -> StatusCode {
    match app.ready.load(Ordering::Relaxed) {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn leader(State(app): State<App>) -> (StatusCode, String) {
    match app.election.term() {
        Some(term) => (StatusCode::OK, format!("leading, term {term}\n")),
        None => (StatusCode::SERVICE_UNAVAILABLE, "following\n".to_owned()),
    }
}

/// Runs while this instance leads; ends soon after it is told to.
async fn background(tenure: &Tenure) {
    println!("background task begins, term {}", tenure.term());
    let mut beats = interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            _ = beats.tick() => {} // work, in small pieces
            _ = tenure.lost() => break,
        }
    }
    println!("background task ends, term {}", tenure.term());
}

/// The server goes on answering until this ends.
async fn wind_up(mut shutdown: Shutdown, app: App) {
    shutdown.requested().await;
    app.ready.store(false, Ordering::Relaxed);
    println!("not ready");
    // Tells the task to stop, waits for it, and gives the lease back.
    match app.election.stop().await {
        Ok(()) => println!("resigned"),
        Err(error) => println!("the lease will run out by itself: {error}"),
    }
    tokio::time::sleep(GRACE).await;
}
