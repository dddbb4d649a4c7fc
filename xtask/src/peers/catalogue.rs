//! Who is measured, by which program, with which work.
//!
//! Numbers of units are chosen so that each program runs for some seconds. Where a system polls, it
//! polls as often as its makers allow to be said; where it has a number of workers, the one that
//! was found to be best is used.

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Workload {
    /// Runs of five steps, many at once.
    Sequence,
    /// Runs of five steps, one at a time.
    Alone,
    /// A queue of small jobs, sent and handled one by one.
    Queue,
    /// The same, sent many in a call.
    Bulk,
    /// The same, sent and handled many in a call.
    Batches,
    /// A parent that waits for a hundred children.
    FanOut,
    /// A run that waits for a signal.
    Signal,
}

pub(super) const WORKLOADS: &[Workload] = &[
    Workload::Sequence,
    Workload::Alone,
    Workload::Queue,
    Workload::Bulk,
    Workload::Batches,
    Workload::FanOut,
    Workload::Signal,
];

impl Workload {
    /// Short, for a line of progress.
    pub(super) fn name(self) -> &'static str {
        match self {
            Workload::Sequence => "W1, many at once",
            Workload::Alone => "W1, one at a time",
            Workload::Queue => "W2, one by one",
            Workload::Bulk => "W2, sent in bulk",
            Workload::Batches => "W2, in batches",
            Workload::FanOut => "W3",
            Workload::Signal => "W4",
        }
    }
}

/// Where a system keeps what it must not lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Sqlite,
    Postgres,
    Own,
}

/// Whose version to name, and where it is written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Version {
    Roundel,
    /// A package in the lock file of the peer's program.
    Cargo(&'static str),
    Npm(&'static str),
    Pip(&'static str),
}

/// How a peer's program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// The `roundel` command, built here.
    Roundel,
    /// A crate in this folder, whose program has this name.
    Cargo(&'static str, &'static str),
    /// A script for Node.
    Node(&'static str),
    /// A script for Python.
    Python(&'static str),
}

pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) version: Version,
    pub(super) place: Place,
    /// How it is made durable, in a few words.
    pub(super) durability: &'static str,
    pub(super) program: Program,
    /// Runs durable functions; otherwise it is a queue only.
    pub(super) executes: bool,
    pub(super) runs: &'static [Run],
}

pub(super) struct Run {
    pub(super) workload: Workload,
    pub(super) arguments: &'static [&'static str],
    /// Units of work, for programs that take a number.
    pub(super) units: Option<u32>,
    pub(super) environment: &'static [(&'static str, &'static str)],
    /// How its jobs are sent and handled, or what else is to be known.
    pub(super) how: &'static str,
}

impl Run {
    const fn how(mut self, how: &'static str) -> Run {
        self.how = how;
        self
    }
}

const fn run(
    workload: Workload,
    arguments: &'static [&'static str],
    units: u32,
    environment: &'static [(&'static str, &'static str)],
) -> Run {
    Run {
        workload,
        arguments,
        units: Some(units),
        environment,
        how: "",
    }
}

/// By Roundel's own benchmark, which knows for how long to measure.
const fn own(workload: Workload, arguments: &'static [&'static str]) -> Run {
    Run {
        workload,
        arguments,
        units: None,
        environment: &[],
        how: "",
    }
}

const OWN: &[Run] = &[
    own(Workload::Sequence, &["w1"]),
    own(Workload::Alone, &["w1"]),
    own(Workload::Queue, &["w2"]).how("by 100 at once; 50 at once"),
    own(
        Workload::Bulk,
        &["w2", "--senders", "8", "--send-many", "100"],
    )
    .how("100 in a call, by 8 at once; 50 at once"),
    own(
        Workload::Batches,
        &[
            "w2",
            "--senders",
            "8",
            "--send-many",
            "100",
            "--many",
            "100",
        ],
    )
    .how("100 in a call, by 8 at once; up to 100 in a call"),
    own(Workload::FanOut, &["w3"]),
    own(Workload::Signal, &["w4"]),
];

const SYNC_ON: &str = "synchronous_commit=on";
const FIVE_MS: &[(&str, &str)] = &[("POLL_MS", "5")];
const EIGHT: &[(&str, &str)] = &[("CONC", "8")];
const FIFTY: &[(&str, &str)] = &[("CONC", "50")];
const ABSURD: &[(&str, &str)] = &[("CONC", "50"), ("POLL", "0.005")];
const BY_100: &[(&str, &str)] = &[("BATCH", "100")];
const TEN: &[(&str, &str)] = &[("WORKERS", "10")];
const NODELAY: &[(&str, &str)] = &[("NODELAY", "1")];
const DBOS_QUEUE: &[(&str, &str)] = &[("POLL", "50")];
const DBOS_PY_QUEUE: &[(&str, &str)] = &[("POLL", "0.05")];

pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "roundel-sqlite",
        version: Version::Roundel,
        place: Place::Sqlite,
        durability: "synchronous=FULL",
        program: Program::Roundel,
        executes: true,
        runs: OWN,
    },
    Peer {
        name: "roundel-postgres",
        version: Version::Roundel,
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Roundel,
        executes: true,
        runs: OWN,
    },
    Peer {
        name: "restate",
        version: Version::Npm("@restatedev/restate-server"),
        place: Place::Own,
        durability: "its default",
        program: Program::Cargo("restate", "bench-restate"),
        executes: true,
        runs: &[
            run(Workload::Sequence, &["w1thr"], 15_000, NODELAY),
            run(Workload::Alone, &["w1lat"], 200, NODELAY),
            run(Workload::Queue, &["w2"], 20_000, NODELAY)
                .how("by 200 at once; as many as its server calls"),
            run(Workload::FanOut, &["w3"], 20, NODELAY),
            run(Workload::Signal, &["w4"], 200, NODELAY),
        ],
    },
    Peer {
        name: "duroxide-sqlite",
        version: Version::Cargo("duroxide"),
        place: Place::Sqlite,
        durability: "synchronous=NORMAL, its default",
        program: Program::Cargo("duroxide", "bench-duroxide"),
        executes: true,
        runs: &[
            run(
                Workload::Sequence,
                &["sqlite", "w1thr"],
                600,
                &[("CONC", "2")],
            ),
            run(Workload::Alone, &["sqlite", "w1lat"], 100, FIVE_MS),
            run(Workload::Queue, &["sqlite", "w2"], 1_000, FIFTY).how("by all at once; 50 at once"),
            run(Workload::FanOut, &["sqlite", "w3"], 5, EIGHT),
            run(Workload::Signal, &["sqlite", "w4"], 100, FIVE_MS),
        ],
    },
    Peer {
        name: "duroxide-pg-opt",
        version: Version::Cargo("duroxide-pg-opt"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Cargo("duroxide", "bench-duroxide"),
        executes: true,
        runs: &[
            run(Workload::Sequence, &["pgopt", "w1thr"], 500, EIGHT),
            run(Workload::Alone, &["pgopt", "w1lat"], 200, &[]),
            run(Workload::Queue, &["pgopt", "w2"], 1_000, FIFTY).how("by all at once; 50 at once"),
            run(Workload::FanOut, &["pgopt", "w3"], 5, EIGHT),
            run(Workload::Signal, &["pgopt", "w4"], 200, &[]),
        ],
    },
    Peer {
        name: "dbos-python-sqlite",
        version: Version::Pip("dbos"),
        place: Place::Sqlite,
        durability: "its default",
        program: Program::Python("dbos/bench.py"),
        executes: true,
        runs: &[
            run(Workload::Sequence, &["sqlite", "w1thr"], 500, &[]),
            run(Workload::Alone, &["sqlite", "w1lat"], 100, &[]),
            run(Workload::Queue, &["sqlite", "w2"], 1_000, DBOS_PY_QUEUE)
                .how("by 8 at once; 50 at once"),
            run(Workload::FanOut, &["sqlite", "w3"], 5, &[]),
            run(Workload::Signal, &["sqlite", "w4"], 10, &[]),
        ],
    },
    Peer {
        name: "dbos-python-postgres",
        version: Version::Pip("dbos"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Python("dbos/bench.py"),
        executes: true,
        runs: &[
            run(Workload::Sequence, &["pg", "w1thr"], 500, &[]),
            run(Workload::Alone, &["pg", "w1lat"], 100, &[]),
            run(Workload::Queue, &["pg", "w2"], 1_000, DBOS_PY_QUEUE)
                .how("by 8 at once; 50 at once"),
            run(Workload::FanOut, &["pg", "w3"], 5, &[]),
            run(Workload::Signal, &["pg", "w4"], 100, &[]),
        ],
    },
    Peer {
        name: "dbos-typescript",
        version: Version::Npm("@dbos-inc/dbos-sdk"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Node("dbos-ts/bench.mjs"),
        executes: true,
        runs: &[
            run(Workload::Sequence, &["w1thr"], 3_000, &[]),
            run(Workload::Alone, &["w1lat"], 200, &[]),
            run(Workload::Queue, &["w2"], 5_000, DBOS_QUEUE).how("by 50 at once; 50 at once"),
            run(Workload::FanOut, &["w3"], 10, &[]),
            run(Workload::Signal, &["w4"], 100, &[]),
        ],
    },
    Peer {
        name: "absurd",
        version: Version::Npm("absurd-sdk"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Node("absurd/bench.mjs"),
        executes: true,
        runs: &[
            run(Workload::Sequence, &["w1thr"], 2_000, ABSURD),
            run(Workload::Alone, &["w1lat"], 100, ABSURD),
            run(Workload::Queue, &["w2"], 4_000, ABSURD).how("by 100 at once; 50 at once"),
            run(Workload::FanOut, &["w3"], 10, ABSURD),
            run(Workload::Signal, &["w4"], 100, ABSURD),
        ],
    },
    Peer {
        name: "pgmq",
        version: Version::Cargo("pgmq"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Cargo("rust-queues", "bench-rust-queues"),
        executes: false,
        runs: &[
            run(Workload::Bulk, &["pgmq1"], 5_000, &[])
                .how("100 in a call, by one, before all else; 50 at once"),
            run(Workload::Batches, &["pgmq100"], 20_000, &[])
                .how("100 in a call, by one, before all else; 100 in a call, by 4"),
        ],
    },
    Peer {
        name: "apalis-postgres",
        version: Version::Cargo("apalis-postgres"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Cargo("rust-queues", "bench-rust-queues"),
        executes: false,
        runs: &[run(Workload::Bulk, &["apalis-pg"], 20_000, BY_100)
            .how("as its stream of pushes does, before all else; 50 at once")],
    },
    Peer {
        name: "graphile-worker",
        version: Version::Npm("graphile-worker"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Node("node-queues/bench.mjs"),
        executes: false,
        runs: &[run(Workload::Queue, &["graphile-tuned"], 20_000, &[])
            .how("by 50 at once, before all else; 50 at once, ended in groups")],
    },
    Peer {
        name: "pg-boss",
        version: Version::Npm("pg-boss"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Node("node-queues/bench.mjs"),
        executes: false,
        runs: &[run(Workload::Batches, &["pgboss"], 20_000, TEN)
            .how("1,000 in a call, by one, before all else; 50 in a call, by 10")],
    },
    Peer {
        name: "procrastinate",
        version: Version::Pip("procrastinate"),
        place: Place::Postgres,
        durability: SYNC_ON,
        program: Program::Python("procrastinate/bench.py"),
        executes: false,
        runs: &[run(Workload::Bulk, &[], 2_000, &[])
            .how("1,000 in a call, by one, before all else; 50 at once")],
    },
];

/// Known, and not measured, with the reason.
pub(super) const UNMEASURED: &[(&str, &str)] = &[
    ("Temporal", "its server is in no package registry"),
    ("Resonate", "its server is in no package registry"),
    ("Obelisk", "there is no program for it"),
];
