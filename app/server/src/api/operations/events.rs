//! Steps 1, 4 and 7 of 7: the API of events: a page of them, or a stream that stays open (server-sent events).
//!
//! A stream begins with `ready`: what a client reads from then on is no older than the stream. `Last-Event-ID` continues
//! a stream that broke; if some of its events are not kept any more, it begins with `reset` instead.
//!
//! The streams of a team read one after another, so that they occupy one connection at most.

use api_types::events::{EventView, EventsView};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;
use workflows::definition::field::FieldError;
use workflows::events::{self, Event, Kept, Position};

use crate::App;
use crate::api::request::auth::{Caller, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::extract::Params;
use crate::api::request::page;
use crate::api::request::read::failed_read;
use crate::api::request::streams::{AdmittedStream, wants_stream};
use crate::api::request::team::teams_of_list;
use crate::api::request::view::{ViewFrom, to_view};

/// How often a stream reads.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How often a stream sends something, and checks that its caller may still read.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Events that are read at once.
const AT_ONCE: i64 = 200;

/// Which events.
#[derive(Clone, Copy, Debug)]
struct Reader {
    /// `None`: of every team of the caller.
    team_id: Option<i64>,
}

/// Which events, and from where on.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    /// Only events of this team; for admins and persons of several teams.
    team_id: Option<i64>,
    /// Events on a page, 1 to 200.
    limit: Option<i64>,
    /// `next_cursor` of the previous page, or the `id` of the last event. Without it, the answer has no events and says where
    /// to continue.
    cursor: Option<String>,
}

/// Read what has changed since a cursor: edits, syncs with EventBridge, decisions and ends of runs. With `Accept:
/// text/event-stream` the answer is a stream that stays open.
#[utoipa::path(get, path = "/api/v1/events", tag = "operations", params(EventParams),
    responses((status = 200, content((EventsView = "application/json"), (String = "text/event-stream"))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn follow_events(
    State(app): State<App>,
    Viewer(caller): Viewer,
    headers: HeaderMap,
    admitted: Option<Extension<Arc<AdmittedStream>>>,
    Params(params): Params<EventParams>,
) -> Result<Response, Error> {
    let reader = Reader { team_id: params.team_id };
    let teams = reader.teams(&caller)?;
    let limit = page::parse_limit(params.limit)?;
    match admitted.filter(|_| wants_stream(&headers)) {
        Some(Extension(admitted)) => {
            let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
            let (position, first) = begin_stream(&app, last.or(params.cursor)).await?;
            let whose = Whose { reader, team_of_caller: caller.team_id, teams };
            let stream = OpenStream::new(app, admitted, whose, position, first);
            Ok(Sse::new(stream.into_events()).into_response())
        }
        None => Ok(Json(read_page(&app, teams.as_deref(), params.cursor, limit).await?).into_response()),
    }
}

async fn read_page(app: &App, teams: Option<&[i64]>, cursor: Option<String>, limit: i64) -> Result<EventsView, Error> {
    let Some(cursor) = cursor else {
        let position = events::begin_following(&app.pools.reads).await?;
        return Ok(EventsView { items: Vec::new(), next_cursor: position.to_string() });
    };
    let after = parse_position(&cursor)?;
    let kept = events::follow_on(&mut *app.pools.reads.acquire().await?, after).await?;
    let read = events::read_events(&app.pools.reads, after, teams, limit).await.map_err(failed_read)?;
    if [kept, read.kept].contains(&Kept::Incomplete) {
        let detail = "the events after this cursor are not kept any more: read your lists, and begin without a cursor";
        return Err(FieldError::new("invalid_cursor", "cursor", detail).into());
    }
    let items = read.events.into_iter().map(EventView::view_from).collect();
    Ok(EventsView { items, next_cursor: read.through.to_string() })
}

fn parse_position(cursor: &str) -> Result<Position, FieldError> {
    let detail = "cursor must be next_cursor of a page, or the id of an event";
    cursor.parse().map_err(|()| FieldError::new("invalid_cursor", "cursor", detail))
}

/// Returns where a stream begins, and the name of its first event.
async fn begin_stream(app: &App, last: Option<String>) -> Result<(Position, &'static str), Error> {
    let mut first = "ready";
    if let Some(last) = last {
        let after = parse_position(&last)?;
        let mut db = app.pools.reads.acquire().await?;
        if events::follow_on(&mut db, after).await? == Kept::Complete {
            return Ok((after, first));
        }
        first = "reset";
    }
    Ok((events::begin_following(&app.pools.reads).await?, first))
}

impl Reader {
    /// The teams whose events the caller reads; `None`: all.
    fn teams(self, caller: &Caller) -> Result<Option<Vec<i64>>, Error> {
        Ok(teams_of_list(caller, self.team_id)?.into_iter().collect())
    }
}

/// Whose events a stream has.
struct Whose {
    reader: Reader,
    /// In whose line it waits for its turn to read.
    team_of_caller: Option<i64>,
    /// `None`: all.
    teams: Option<Vec<i64>>,
}

/// A stream that is open.
struct OpenStream {
    app: App,
    admitted: Arc<AdmittedStream>,
    whose: Whose,
    position: Position,
    unsent: VecDeque<sse::Event>,
    reads_at: Instant,
    beats_at: Instant,
}

impl OpenStream {
    fn new(app: App, admitted: Arc<AdmittedStream>, whose: Whose, position: Position, first: &'static str) -> Self {
        let now = Instant::now();
        let first = sse::Event::default().event(first).id(position.to_string()).data("{}");
        Self {
            app,
            admitted,
            whose,
            position,
            unsent: VecDeque::from([first]),
            reads_at: now,
            beats_at: now + HEARTBEAT,
        }
    }

    fn into_events(self) -> impl Stream<Item = Result<sse::Event, Infallible>> {
        stream::unfold(self, |mut stream| async move {
            let next = stream.next_event().await?;
            Some((Ok(next), stream))
        })
    }

    /// Returns `None` when the stream ends: the client connects again, and continues from its last event.
    async fn next_event(&mut self) -> Option<sse::Event> {
        loop {
            let now = Instant::now();
            // First, because a client that reads slowly has unsent events for long.
            if now >= self.beats_at {
                self.beats_at = now + HEARTBEAT;
                self.go_on().await?;
                if self.unsent.is_empty() {
                    // The id, too, so that a client that had no event for long continues from here.
                    return Some(sse::Event::default().id(self.position.to_string()).comment("heartbeat"));
                }
            }
            if let Some(event) = self.unsent.pop_front() {
                return Some(event);
            }
            if now >= self.reads_at {
                match self.read(now).await {
                    Ok(Kept::Complete) => {}
                    // The job has removed events that this client does not have. It connects again, and gets `reset`.
                    Ok(Kept::Incomplete) => return None,
                    Err(error) => {
                        tracing::debug!(?error, "stream of events ended");
                        return None;
                    }
                }
            }
            if self.unsent.is_empty() {
                tokio::select! {
                    () = self.admitted.until_dismissed() => return None,
                    () = tokio::time::sleep_until(self.reads_at.min(self.beats_at)) => {}
                }
            }
        }
    }

    /// Ends the stream of a key that was revoked, of a person who left the team, and of a client that is an hour behind.
    async fn go_on(&mut self) -> Option<()> {
        let caller = self.admitted.identify_again(&self.app).await.ok()?;
        self.whose.teams = self.whose.reader.teams(&caller).ok()?;
        let mut db = self.app.pools.reads.acquire().await.ok()?;
        let kept = events::follow_on(&mut db, self.position).await.ok()?;
        (kept == Kept::Complete).then_some(())
    }

    async fn read(&mut self, now: Instant) -> Result<Kept, Error> {
        let _turn = self.app.streams_of_team.wait_turn(self.whose.team_of_caller).await?;
        let teams = self.whose.teams.as_deref();
        let read = events::read_events(&self.app.pools.reads, self.position, teams, AT_ONCE).await?;
        self.position = read.through;
        self.unsent.extend(read.events.into_iter().filter_map(to_sse));
        self.reads_at = if read.may_be_more { now } else { now + READ_EVERY };
        Ok(read.kept)
    }
}

fn to_sse(event: Event) -> Option<sse::Event> {
    let sent = sse::Event::default().event(event.kind.as_str()).id(event.position.to_string());
    sent.json_data(EventView::view_from(event)).ok()
}

impl ViewFrom<Event> for EventView {
    fn view_from(event: Event) -> Self {
        Self {
            id: event.position.to_string(),
            at: event.created_on,
            kind: to_view(event.kind),
            what: event.what,
            team_id: event.team_id,
            workflow_id: event.workflow_id,
            run_id: event.run_id,
            scheduled_time: event.scheduled_time,
            revision: event.revision,
            subject: event.subject,
            actor: event.actor,
        }
    }
}
