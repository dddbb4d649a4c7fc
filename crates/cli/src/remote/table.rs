//! What each command asks of a server: one row each. A command, or an argument, that has no place
//! here is refused, and says so.

/// How an argument is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// In the query, under this name.
    Query(&'static str),
    /// In the body, as a text.
    Text(&'static str),
    /// In the body, as a number.
    Number(&'static str),
    /// In the body, as the JSON that it is, or that it names.
    Json(&'static str),
    /// In the body, as an object of texts: `name=value`, any number of them.
    Labels(&'static str),
    /// In the body, as milliseconds.
    Millis(&'static str),
    /// In the body, as a number or `none`; with a time after a slash, that as `rate_ms`.
    Limit(&'static str),
    /// In the body, as milliseconds, or as the word that it is.
    Keep(&'static str),
    /// In the path, in place of its last word, if it was said.
    Instead(&'static str),
    /// In the body or the query, that it was said.
    Flag(&'static str),
    /// In the path, and once for each: `{}` stands for it.
    Path,
    /// Not at all: it is about what is shown, or that nobody is asked.
    Here,
}

/// How an answer is shown to people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shown {
    /// A table of these fields of its items.
    List(&'static [&'static str]),
    /// A run with its journal.
    Run,
    /// A tree of runs.
    Tree,
    /// One of its fields.
    Field(&'static str),
    /// All its fields.
    Fields,
    /// How many its items are for, together.
    Count,
    /// How long things are kept, in words.
    Retention,
    /// A schedule that was set.
    Set,
    /// The next times of a schedule.
    Times,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Its words.
    pub(super) command: &'static str,
    pub(super) method: &'static str,
    /// Below the namespace.
    pub(super) path: &'static str,
    pub(super) args: &'static [(&'static str, Sent)],
    pub(super) shown: Shown,
}

const RUN: Shown = Shown::List(&["run", "state", "workflow", "created_at", "key", "labels"]);
const PARKED: Shown = Shown::List(&["id", "workflow", "key", "since", "failure"]);
const REASON: (&str, Sent) = ("reason", Sent::Text("reason"));
const LIMIT: (&str, Sent) = ("limit", Sent::Query("limit"));
const BY_PATH: (&str, Sent) = ("run", Sent::Path);
const YES: (&str, Sent) = ("yes", Sent::Here);

macro_rules! rows {
    ($($command:literal $method:ident $path:literal [$($arg:expr),*] $shown:expr;)*) => {
        &[$(Row {
            command: $command,
            method: stringify!($method),
            path: $path,
            args: &[$($arg),*],
            shown: $shown,
        },)*]
    };
}

/// All of them.
pub(super) const ROWS: &[Row] = rows! {
    "runs list" GET "runs" [
        ("workflow", Sent::Query("workflow")), ("state", Sent::Query("state")),
        ("label", Sent::Query("label")), LIMIT
    ] RUN;
    "runs show" GET "runs/{}" [
        BY_PATH, ("execution", Sent::Query("execution")), ("full", Sent::Here),
        ("follow", Sent::Here)
    ] Shown::Run;
    "runs why" GET "runs/{}/why" [BY_PATH] Shown::Field("sentence");
    "runs tree" GET "runs/{}/tree" [
        BY_PATH, ("below", Sent::Flag("below")), LIMIT
    ] Shown::Tree;
    "runs cancel" POST "runs/{}/cancel" [
        ("runs", Sent::Path), ("without_undo", Sent::Flag("without_undo")), REASON
    ] Shown::Fields;
    "runs undo" POST "runs/{}/undo" [
        BY_PATH, YES, ("preview", Sent::Here), REASON
    ] Shown::Fields;
    "runs patch" POST "runs/{}/patch" [
        BY_PATH, ("patch", Sent::Json("patch")), ("if_version", Sent::Number("if_version")), REASON
    ] Shown::Fields;
    "runs delete" DELETE "runs/{}" [
        ("runs", Sent::Path), ("force", Sent::Flag("force")), ("reason", Sent::Query("reason"))
    ] Shown::Fields;
    "start" POST "runs" [
        ("workflow", Sent::Text("workflow")), ("input", Sent::Json("input")),
        ("key", Sent::Text("key")), ("label", Sent::Labels("labels")),
        ("version", Sent::Number("version")), ("priority", Sent::Number("priority")),
        ("flow_key", Sent::Text("flow_key")), ("delay", Sent::Millis("delay_ms"))
    ] Shown::Field("run");
    "runs resume" POST "parked/{}/retry" [
        BY_PATH, ("input", Sent::Json("input")), ("skip", Sent::Instead("skip")), REASON
    ] Shown::Fields;
    "runs accept" POST "parked/{}/accept" [BY_PATH, REASON] Shown::Fields;
    "runs complete" POST "parked/{}/complete" [
        BY_PATH, ("value", Sent::Json("value")), REASON
    ] Shown::Fields;
    "signal" POST "runs/{}/signals" [
        BY_PATH, ("signal", Sent::Text("signal")), ("payload", Sent::Json("payload")),
        ("key", Sent::Text("key"))
    ] Shown::Fields;
    "offer" POST "offers" [
        ("signal", Sent::Text("signal")), ("payload", Sent::Json("payload")),
        ("key", Sent::Text("key"))
    ] Shown::Fields;
    "publish" POST "topics/{}/publications" [
        ("topic", Sent::Path), ("payload", Sent::Json("payload"))
    ] Shown::Fields;
    "topics" GET "topics" [] Shown::List(&["topic", "subscribers", "publications", "unheard"]);
    "topics show" GET "topics/{}/publications" [("topic", Sent::Path), LIMIT]
        Shown::List(&["publication", "at", "heard", "payload", "by"]);
    "topics subscribe" PUT "topics/{}/subscribers/{}" [
        ("topic", Sent::Path), ("workflow", Sent::Path), REASON
    ] Shown::Fields;
    "topics unsubscribe" DELETE "topics/{}/subscribers/{}" [
        ("topic", Sent::Path), ("workflow", Sent::Path), ("reason", Sent::Query("reason"))
    ] Shown::Fields;
    "commands send" POST "commands/{}" [
        ("queue", Sent::Path), ("payload", Sent::Json("payload")), ("id", Sent::Text("id")),
        ("label", Sent::Labels("labels")), ("priority", Sent::Number("priority")),
        ("flow_key", Sent::Text("flow_key")), ("delay", Sent::Millis("delay_ms"))
    ] Shown::Field("run");
    "commands show" GET "commands/{}/{}" [BY_PATH, ("id", Sent::Path)] Shown::Fields;
    "commands list" GET "commands/{}" [
        ("queue", Sent::Path), ("state", Sent::Query("state")), ("label", Sent::Query("label")),
        LIMIT
    ] Shown::List(&["run", "id", "state", "created_at", "payload"]);
    "batches list" GET "batches" [LIMIT]
        Shown::List(&["batch", "state", "commands", "ended", "failed", "parked"]);
    "batches show" GET "batches/{}" [BY_PATH] Shown::Fields;
    "queues" GET "queues" []
        Shown::List(&["queue", "paused", "in_hand", "concurrency", "per_key", "rate"]);
    "queues set" PUT "queues/{}" [
        ("queue", Sent::Path), ("concurrency", Sent::Limit("concurrency")),
        ("per_key", Sent::Limit("per_key")), ("rate", Sent::Limit("rate")), REASON
    ] Shown::Fields;
    "queues pause" POST "queues/{}/pause" [("queue", Sent::Path), REASON] Shown::Fields;
    "queues resume" POST "queues/{}/resume" [("queue", Sent::Path), REASON] Shown::Fields;
    "retention show" GET "retention" [] Shown::Retention;
    "retention set" PUT "retention" [
        ("keep", Sent::Keep("keep")), ("workflow", Sent::Text("workflow")), REASON
    ] Shown::Retention;
    "schedules list" GET "schedules" [LIMIT]
        Shown::List(&["schedule", "words", "paused", "next_at"]);
    "schedules show" GET "schedules/{}" [("name", Sent::Path)] Shown::Fields;
    "schedules add" PUT "schedules/{}" [
        ("name", Sent::Path), ("workflow", Sent::Text("workflow")),
        ("command", Sent::Text("command")), ("input", Sent::Json("input")),
        ("cron", Sent::Text("cron")), ("zone", Sent::Text("zone")),
        ("every", Sent::Millis("every_ms")), ("once", Sent::Text("once")),
        ("overlap", Sent::Text("overlap")), ("catch_up", Sent::Text("catch_up")),
        ("grace", Sent::Millis("grace_ms")), REASON
    ] Shown::Set;
    "schedules backfill" POST "schedules/{}/backfill" [
        ("name", Sent::Path), ("from", Sent::Text("first")), ("to", Sent::Text("last")), REASON
    ] Shown::Fields;
    "schedules next" GET "schedules/{}" [("name", Sent::Path), ("count", Sent::Query("times"))]
        Shown::Times;
    "schedules remove" DELETE "schedules/{}" [
        ("name", Sent::Path), ("reason", Sent::Query("reason"))
    ] Shown::Fields;
    "schedules pause" POST "schedules/{}/pause" [("name", Sent::Path), REASON] Shown::Fields;
    "schedules resume" POST "schedules/{}/resume" [("name", Sent::Path), REASON] Shown::Fields;
    "schedules run" POST "schedules/{}/run" [("name", Sent::Path), REASON] Shown::Field("key");
    "parked list" GET "parked" [
        ("workflow", Sent::Query("workflow")), ("label", Sent::Query("label")),
        ("code", Sent::Query("code")), ("group", Sent::Query("group")), LIMIT
    ] PARKED;
    "parked count" GET "parked/groups" [
        ("workflow", Sent::Query("workflow")), ("label", Sent::Query("label")),
        ("code", Sent::Query("code"))
    ] Shown::Count;
    "parked groups" GET "parked/groups" [
        ("workflow", Sent::Query("workflow")), ("label", Sent::Query("label")),
        ("code", Sent::Query("code"))
    ] Shown::List(&["fingerprint", "count", "workflows", "code", "message"]);
    "parked show" GET "parked/{}" [BY_PATH] Shown::Fields;
    "parked retry" POST "parked/{}/retry" [
        ("runs", Sent::Path), ("input", Sent::Json("input")),
        ("skip", Sent::Instead("skip")), REASON
    ] Shown::Fields;
    "parked cancel" POST "parked/{}/cancel" [
        ("runs", Sent::Path), ("without_undo", Sent::Instead("cancel_without_undo")), REASON
    ] Shown::Fields;
    "parked complete" POST "parked/{}/complete" [
        ("runs", Sent::Path), ("value", Sent::Json("value")), REASON
    ] Shown::Fields;
    "parked undo" POST "parked/{}/undo" [("runs", Sent::Path), REASON] Shown::Fields;
    "parked accept" POST "parked/{}/accept" [("runs", Sent::Path), REASON] Shown::Fields;
    "parked replay" POST "parked/{}/replay" [
        ("runs", Sent::Path), ("to", Sent::Text("to")), REASON
    ] Shown::Fields;
    "parked offer" POST "parked/{}/offer" [("runs", Sent::Path), REASON] Shown::Fields;
    "parked discard" POST "parked/{}/discard" [("runs", Sent::Path), REASON] Shown::Fields;
    "facts list" GET "facts" [
        ("kind", Sent::Query("kind")), ("stream", Sent::Query("stream")),
        ("run", Sent::Query("run")), LIMIT
    ] Shown::List(&["position", "id", "kind", "stream", "at"]);
    "facts show" GET "facts/{}" [("id", Sent::Path)] Shown::Fields;
    "documents list" GET "documents" [("prefix", Sent::Query("prefix")), LIMIT]
        Shown::List(&["path", "version", "at", "value"]);
    "sql" POST "sql" [
        ("statement", Sent::Text("statement")), ("limit", Sent::Number("limit")),
        ("views", Sent::Here)
    ] Shown::Fields;
    "documents get" GET "documents/{}" [("path", Sent::Path)] Shown::Fields;
    "audit" GET "audit" [
        ("run", Sent::Query("run")), ("by", Sent::Query("by")), LIMIT
    ] Shown::List(&["number", "at", "operator", "action", "run", "reason"]);
};
