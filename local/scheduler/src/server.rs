//! Steps 4 and 5 of 7: the stand-in as a server: AWS's operations, the control API, and the loop that fires.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::browser_guard::refuse_web_pages;
use crate::clock::Clock;
use crate::control_api;
use crate::queues;
use crate::scheduler::api;
use crate::stand_in::StandIn;

/// A stand-in that is being served; dropping it stops it.
pub struct StandInServer {
    /// The account
    pub stand_in: StandIn,
    /// `http://127.0.0.1:PORT`
    pub endpoint: String,
    stop: CancellationToken,
    serving: Option<JoinHandle<Result<()>>>,
}

impl StandInServer {
    /// Serves an account in the background.
    ///
    /// # Errors
    /// Fails if the listener has no address.
    pub fn start_on(stand_in: StandIn, listener: TcpListener) -> Result<StandInServer> {
        let endpoint = format!("http://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(stand_in.clone().serve_until(listener, stop.clone().cancelled_owned()));
        Ok(StandInServer { stand_in, endpoint, stop, serving: Some(serving) })
    }

    /// Serves an account on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Fails if there is no free port.
    pub async fn start_anywhere(stand_in: StandIn) -> Result<StandInServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port on 127.0.0.1")?;
        StandInServer::start_on(stand_in, listener)
    }

    /// Stops it, and returns after the deliveries in progress are answered.
    ///
    /// # Errors
    /// Fails if serving has failed.
    pub async fn stop_serving(mut self) -> Result<()> {
        self.stop.cancel();
        match self.serving.take() {
            Some(serving) => serving.await.context("the stand-in ended unexpectedly")?,
            None => Ok(()),
        }
    }
}

impl Drop for StandInServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl StandIn {
    /// Serves the API until `shutdown`. If the clock runs, it also fires; a clock that a test sets is advanced by the
    /// test.
    ///
    /// # Errors
    /// Fails if the listener fails.
    pub async fn serve_until(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<()> {
        let listens_on = listener.local_addr()?.ip();
        let stop = CancellationToken::new();
        let (fires, scheduler, clock) = (self.fires.clone(), self.scheduler.clone(), self.scheduler.clock().clone());
        let fires_stop = stop.clone().cancelled_owned();
        let firing = tokio::spawn(async move {
            match clock {
                Clock::System => fires.run_until(fires_stop).await,
                Clock::Fixed(_) => {}
            }
        });
        // Without it, small answers wait for the client's delayed acknowledgement.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY not set");
            }
        });
        let serve =
            axum::serve(listener, self.router(listens_on)).with_graceful_shutdown(stop.clone().cancelled_owned());
        let serving = tokio::spawn(async move { serve.await });
        shutdown.await;
        stop.cancel();
        scheduler.end_silence();
        firing.await.context("the loop that fires schedules ended unexpectedly")?;
        serving.await.context("the stand-in ended unexpectedly")?.context("the stand-in cannot be served")
    }

    fn router(self, listens_on: IpAddr) -> Router {
        let scheduler = self.scheduler.clone();
        Router::new()
            .route("/_dead-letters", get(list_dead_letters))
            .route("/", post(queues::answer_queue_operation))
            .route("/_fires", get(list_fires))
            .merge(control_api::control_router())
            .with_state(self)
            .merge(api::scheduler_router(scheduler))
            .layer(from_fn_with_state(listens_on, refuse_web_pages))
    }
}

async fn list_dead_letters(State(stand_in): State<StandIn>) -> Json<Value> {
    Json(json!({ "items": stand_in.dead_letters.all_messages() }))
}

async fn list_fires(State(stand_in): State<StandIn>) -> Json<Value> {
    Json(json!({ "items": stand_in.fires.recent_fires() }))
}
