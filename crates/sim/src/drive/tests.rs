//! A journal that is newer than the claim for which it is read.

use roundel::sim::{Function, Seat};
use roundel_core::check::Reader;
use roundel_core::{
    Call, CancelMark, Deadlines, Delivery, Entry, JournalRow, LaneId, Name, Outcome, Source, Why,
    WorkerId, decode_entries, encode_entries,
};

use super::*;
use crate::flows::Tally;

const CHILD: RunId = RunId(uuid::Uuid::from_u128(2));

/// Of a run that was asked to end while its child had not ended.
fn journal(run: RunId) -> JournalRow {
    let name = Name::constant("parent");
    let started = Entry::Started {
        workflow: name.clone(),
        version: 1,
        input: World::payload(&Tally::default()),
        unsettled: None,
        context: roundel_core::Context::default(),
        due: None,
    };
    let what = Call::Child {
        workflow: Name::constant("steps"),
        run: CHILD,
    };
    let entries = [started, Entry::Begun { call: 1, what }, Entry::CancelSeen];
    JournalRow {
        run,
        execution: 1,
        first: 1,
        count: 3,
        epoch: 1,
        at: Timestamp(1),
        entries: encode_entries(&entries),
    }
}

/// The claim knows of the child's end, and nothing of the request: its run was deleted, and
/// what is there under its id is another.
fn older(run: RunId) -> Claimed {
    Claimed {
        run,
        epoch: 5,
        created_at: Timestamp(0),
        lane: LaneId(1),
        execution: 1,
        head: 2,
        parent: None,
        key: None,
        cancel: CancelMark::None,
        deadlines: Deadlines::default(),
        suspect: false,
        inbox: vec![Delivery {
            execution: 1,
            call: 1,
            source: Source::Mail(1),
            body: Outcome::Value(World::payload(&Tally::default())),
        }],
        at: Timestamp(0),
    }
}

#[test]
fn a_journal_that_is_newer_than_the_claim_says_that_the_run_was_cancelled() {
    let (run, lease) = (RunId::from_bytes([1; 16]), Duration::from_secs(1));
    let about = RunInfo {
        namespace: NAMESPACE,
        run,
        workflow: Name::constant("parent"),
        version: 1,
        execution: 1,
        key: None,
        is_root: true,
        deadlines: Deadlines::default(),
        context: roundel_core::Context::default(),
    };
    let seat = Seat::new(
        WorkerId::from_bytes([9; 16]),
        lease,
        lease,
        crate::trees::undos(),
    );
    let steps: roundel::Workflow<Tally, Tally> = roundel::Workflow::named("steps");
    roundel::sim::seed(1);
    let waits =
        Function::new(
            move |cx: roundel::Cx, tally: Tally| async move { cx.child(steps, &tally).await },
        );
    let mut reader = Reader::default();
    let rows = [journal(run)];
    let loaded = Live::load(about, &waits, &rows, (older(run), &seat, &mut reader));
    let Turn::Commit(round) = loaded.unwrap().turn(Timestamp(2)) else {
        panic!("what comes of it is refused by its fence, so it must come to that")
    };
    let entries = decode_entries(&round.entries).unwrap();
    let why = |entry: &Entry| match entry {
        Entry::RollingBack { why, .. } => Some(why.clone()),
        _ => None,
    };
    assert_eq!(entries.iter().find_map(why), Some(Why::Cancelled));
    assert_eq!(round.epoch, 5);
}
