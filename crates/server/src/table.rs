//! The table of routes: all that can be asked for, but for health, readiness and login.

use axum::http::Method;

use crate::api::{
    audit, batches, commands, counts, facts, me, parked, queues, retention, runs, schedules, sql,
    submit, topics, work,
};
use crate::route::{Listed, Route};
use crate::{live, openapi, ui};

/// Every route, without what it does.
#[must_use]
pub fn listed() -> Vec<Listed> {
    routes().into_iter().map(|route| route.listed).collect()
}

macro_rules! table {
    ($($method:ident $path:literal $about:literal => $handler:expr;)*) => {
        vec![$(Route::new((Method::$method, $path, $about), $handler),)*]
    };
}

pub(crate) fn routes() -> Vec<Route> {
    let mut routes = about_the_server();
    routes.extend(about_runs());
    routes.extend(about_the_rest());
    routes.extend(about_work());
    routes
}

fn about_work() -> Vec<Route> {
    table! {
        POST "/api/v1/{namespace}/work/claim" "Claim commands, and wait for some" => work::claim;
        POST "/api/v1/{namespace}/work/extend" "Keep a command for longer" => work::extend;
        POST "/api/v1/{namespace}/work/complete" "Answer a command" => work::complete;
        POST "/api/v1/{namespace}/work/fail" "A command failed" => work::fail;
        POST "/api/v1/{namespace}/work/release" "Give a command back" => work::release;
        POST "/api/v1/{namespace}/work/leave" "The worker goes" => work::leave;
    }
}

fn about_the_server() -> Vec<Route> {
    table! {
        GET "/api/v1/me" "Who asks, and what they may do" => me::show;
        DELETE "/api/v1/session" "End this session" => me::leave;
        GET "/api/v1/openapi.json" "This description" => openapi::show;
        GET "/" "The way to the dashboard" => ui::lead;
        GET "/ui/" "The dashboard" => ui::show;
        GET "/ui/{file}" "A file of the dashboard" => ui::show;
        GET "/metrics" "What was counted, for Prometheus" => counts::metrics;
        POST "/api/v1/sql" "Ask in SQL; nothing is changed" => sql::ask;
        POST "/api/v1/sql/csv" "The same, as a file" => sql::export;
        GET "/api/v1/sql/views" "What there is to ask" => sql::views;
    }
}

fn about_runs() -> Vec<Route> {
    table! {
        GET "/api/v1/{namespace}/runs" "Runs, newest first" => runs::list;
        POST "/api/v1/{namespace}/runs" "Start a run" => submit::start;
        GET "/api/v1/{namespace}/runs/{run}" "A run, and what happened in it" => runs::show;
        DELETE "/api/v1/{namespace}/runs/{run}" "Remove a run and all below it" => runs::delete;
        GET "/api/v1/{namespace}/runs/{run}/tree" "The tree it is part of" => runs::tree;
        GET "/api/v1/{namespace}/runs/{run}/why" "What is in its way" => runs::why;
        GET "/api/v1/{namespace}/runs/{run}/undo" "What an undo would do" => runs::preview;
        POST "/api/v1/{namespace}/runs/{run}/undo" "Undo what it did" => runs::undo;
        POST "/api/v1/{namespace}/runs/{run}/cancel" "Ask it to end" => runs::cancel;
        POST "/api/v1/{namespace}/runs/{run}/patch" "Merge a patch into its own state"
            => runs::patch;
        POST "/api/v1/{namespace}/runs/{run}/signals" "Send it a signal" => submit::signal;
        GET "/api/v1/{namespace}/runs/{run}/events" "Changes of a run, live" => live::run;
        GET "/api/v1/{namespace}/counts" "How many runs there are" => counts::counts;
        GET "/api/v1/{namespace}/events" "Changes of the counts, live" => live::counts;
        GET "/api/v1/{namespace}/workers" "Who works" => counts::workers;
        GET "/api/v1/{namespace}/parked" "What waits for an operator" => parked::list;
        POST "/api/v1/{namespace}/parked" "Do something about many" => parked::many;
        GET "/api/v1/{namespace}/parked/groups" "Those that are alike" => parked::groups;
        GET "/api/v1/{namespace}/parked/{id}" "One of them" => parked::show;
        POST "/api/v1/{namespace}/parked/{id}/{remedy}" "Do something about one" => parked::act;
    }
}

fn about_the_rest() -> Vec<Route> {
    table! {
        POST "/api/v1/{namespace}/offers" "Offer a signal to who waits longest" => submit::offer;
        GET "/api/v1/{namespace}/commands/{queue}" "Commands, newest first" => commands::list;
        POST "/api/v1/{namespace}/commands/{queue}" "Send a command" => commands::send;
        GET "/api/v1/{namespace}/commands/{queue}/{id}" "One command" => commands::show;
        GET "/api/v1/{namespace}/queues" "Queues that have limits" => queues::list;
        PUT "/api/v1/{namespace}/queues/{queue}" "Limit a queue" => queues::set;
        POST "/api/v1/{namespace}/queues/{queue}/pause" "Begin nothing of it" => queues::pause;
        POST "/api/v1/{namespace}/queues/{queue}/resume" "Begin what waits" => queues::resume;
        GET "/api/v1/{namespace}/retention" "How long what has ended is kept" => retention::show;
        PUT "/api/v1/{namespace}/retention" "Set how long it is kept" => retention::set;
        GET "/api/v1/{namespace}/topics" "Topics, and who listens" => topics::list;
        GET "/api/v1/{namespace}/topics/{topic}/publications" "What was published"
            => topics::publications;
        POST "/api/v1/{namespace}/topics/{topic}/publications" "Publish" => submit::publish;
        PUT "/api/v1/{namespace}/topics/{topic}/subscribers/{workflow}" "Subscribe"
            => topics::subscribe;
        DELETE "/api/v1/{namespace}/topics/{topic}/subscribers/{workflow}" "Unsubscribe"
            => topics::unsubscribe;
        GET "/api/v1/{namespace}/schedules" "Schedules" => schedules::list;
        GET "/api/v1/{namespace}/schedules/{schedule}" "One schedule" => schedules::show;
        PUT "/api/v1/{namespace}/schedules/{schedule}" "Set a schedule" => schedules::set;
        DELETE "/api/v1/{namespace}/schedules/{schedule}" "Remove it" => schedules::remove;
        POST "/api/v1/{namespace}/schedules/{schedule}/{verb}" "Pause it, resume it, run it now"
            => schedules::ask;
        POST "/api/v1/{namespace}/schedules/{schedule}/backfill" "Make up for times of the past"
            => schedules::backfill;
        GET "/api/v1/{namespace}/batches" "Batches, newest first" => batches::list;
        POST "/api/v1/{namespace}/batches" "Send commands together" => batches::send;
        GET "/api/v1/{namespace}/batches/{run}" "One batch" => batches::show;
        GET "/api/v1/{namespace}/facts" "Facts, in order" => facts::list;
        GET "/api/v1/{namespace}/facts/{id}" "One fact" => facts::show;
        GET "/api/v1/{namespace}/documents" "Documents, by path" => facts::documents;
        GET "/api/v1/{namespace}/documents/{path}" "One document" => facts::document;
        GET "/api/v1/{namespace}/audit" "What was done, and by whom" => audit::list;
    }
}
