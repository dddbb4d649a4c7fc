//! Deletes: whole trees, from the leaves.

use roundel_core::{
    Caused, Delete, Name, Op, Outcome, Refusal, Reply, RunId, RunState, Start, Target, limits,
};

use crate::world::{A, B, NS, World, child_of, claimant, same, signal, suspending};

fn delete(run: RunId, force: bool) -> Op {
    Op::Delete(Delete {
        namespace: NS,
        target: Target::Run(run),
        force,
    })
}

/// A child that this worker has, started in call 1 of a run that goes on.
fn child(world: &mut World, parent: RunId) -> RunId {
    let start = Start {
        claimant: Some(claimant(A)),
        ..child_of(world, parent, 1)
    };
    let id = start.run;
    let mut round = world.round(parent);
    round.caused.push(Caused::Child(1, Box::new(start)));
    world.commit(round);
    id
}

#[test]
fn ro_51_a_live_run_is_deleted_only_by_force() {
    let mut world = World::new();
    let run = world.owned(A);
    let before = world.dump();
    let state = RunState::Running;
    assert_eq!(
        world.op(&delete(run, false)),
        Err(Refusal::NotEnded { run, state })
    );
    same(&before, &world.dump());
    let late = world.round(run);
    assert_eq!(
        world.must(delete(run, true)),
        Reply::Deleted {
            runs: 1,
            more: false
        }
    );
    assert_eq!(
        world.try_commit(late),
        Err(Refusal::UnknownRun { run }),
        "nothing is recreated"
    );
    assert_eq!(
        world.op(&delete(run, true)),
        Err(Refusal::UnknownRun { run })
    );
}

#[test]
fn ro_51_a_delete_takes_the_whole_tree_and_what_hangs_under_it() {
    let mut world = World::new();
    let stays = world.waiting(A, &[(1, "go")]);
    let key = Some(Name::constant("k"));
    let root = Start {
        key,
        claimant: Some(claimant(A)),
        ..world.starting()
    };
    let root = world.started(root).run;
    let below = child(&mut world, root);
    let lowest = child(&mut world, below);
    for run in [root, below, lowest] {
        world.signal(run, "go", 1);
        let mut round = crate::world::opening(world.round(run), &[(3, "@job")]);
        round
            .state
            .push(roundel_core::StateChange::Set(crate::world::value(1)));
        world.commit(round);
    }
    world.offer("@job", 1);
    assert_eq!(
        world.must(delete(root, true)),
        Reply::Deleted {
            runs: 3,
            more: false
        }
    );
    assert_eq!(
        world.rows.runs().map(|run| run.id).collect::<Vec<_>>(),
        [stays]
    );
    assert_eq!(world.rows.mail.iter().count(), 0);
    assert_eq!(world.rows.states.iter().count(), 0);
    assert_eq!(world.rows.keys.iter().count(), 0);
    assert!(world.rows.waits.iter().all(|(wait, _)| wait.run == stays));
    assert!(world.journal.iter().all(|row| row.run == stays));
    assert_eq!(
        world
            .rows
            .offers
            .iter()
            .filter(|(_, row)| row.taken_by.is_none())
            .count(),
        1
    );
    world.check();
}

#[test]
fn ro_51_an_ended_run_goes_only_with_its_tree_at_rest() {
    let mut world = World::new();
    let root = world.owned(A);
    let below = child(&mut world, root);
    world.end(below);
    let state = RunState::Running;
    assert_eq!(
        world.op(&delete(below, false)),
        Err(Refusal::NotEnded { run: root, state })
    );
    world.end(root);
    assert_eq!(
        world.must(delete(below, false)),
        Reply::Deleted {
            runs: 1,
            more: false
        }
    );
    assert_eq!(
        world.must(delete(root, false)),
        Reply::Deleted {
            runs: 1,
            more: false
        }
    );
}

#[test]
fn ro_51_an_ended_root_with_a_live_run_below_is_not_deleted() {
    let mut world = World::new();
    let root = world.owned(A);
    let below = child(&mut world, root);
    world.end(root);
    let state = RunState::Running;
    assert_eq!(
        world.op(&delete(root, false)),
        Err(Refusal::NotEnded { run: below, state })
    );
}

#[test]
fn ro_51_parent_and_watchers_of_a_deleted_run_are_told() {
    let mut world = World::new();
    let (parent, watcher) = (world.owned(A), world.owned(B));
    let below = child(&mut world, parent);
    let mut round = suspending(world.round(watcher));
    round.caused.push(Caused::Watch(2, NS, Target::Run(below)));
    world.commit(round);
    let round = suspending(world.round(parent));
    world.commit(round);
    world.must(delete(below, true));
    for run in [parent, watcher] {
        let mut mail = world.rows.mail_of(run);
        let (_, row) = mail.next().expect("it was told");
        let Outcome::Failure(failure) = &row.body else {
            panic!("a failure")
        };
        assert_eq!(failure.code, "deleted");
    }
    world.check();
}

#[test]
fn inv10_a_large_tree_goes_from_its_leaves_in_parts() {
    let mut world = World::new();
    let root = world.owned(A);
    let wide = limits::DELETE / 2;
    for _ in 0..wide {
        let below = child(&mut world, root);
        child(&mut world, below);
    }
    let all = 2 * wide + 1;
    let first = world.must(delete(root, true));
    assert_eq!(
        first,
        Reply::Deleted {
            runs: limits::DELETE,
            more: true
        }
    );
    for run in world.rows.runs() {
        let parent = run.parent.map(|parent| parent.run);
        assert!(
            parent.is_none_or(|parent| world.rows.run(parent).is_some()),
            "an orphan"
        );
    }
    let rest = all - limits::DELETE;
    assert_eq!(
        world.must(delete(root, true)),
        Reply::Deleted {
            runs: rest,
            more: false
        }
    );
    assert_eq!(world.rows.runs().count(), 0);
}

#[test]
fn ro_51_a_delete_of_exactly_the_limit_is_complete() {
    let mut world = World::new();
    let root = world.owned(A);
    for _ in 1..limits::DELETE {
        child(&mut world, root);
    }
    let deleted = world.must(delete(root, true));
    assert_eq!(
        deleted,
        Reply::Deleted {
            runs: limits::DELETE,
            more: false
        }
    );
}

#[test]
fn ro_51_a_run_of_another_namespace_is_unknown() {
    let mut world = World::new();
    let run = world.start();
    let namespace = Name::constant("other");
    let foreign = Op::Delete(Delete {
        namespace,
        target: Target::Run(run),
        force: true,
    });
    assert_eq!(world.op(&foreign), Err(Refusal::UnknownRun { run }));
    let key = Name::constant("none");
    let none = Op::Delete(Delete {
        namespace: NS,
        target: Target::Key(key.clone()),
        force: true,
    });
    assert_eq!(world.op(&none), Err(Refusal::UnknownKey { key }));
    assert_eq!(world.send(signal(run, "go", 1)), roundel_core::Sent::Queued);
}
