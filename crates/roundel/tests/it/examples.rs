//! The programs in `examples`, as they are: each checks its own results.

#[path = "../../examples/endless.rs"]
mod endless;
#[path = "../../examples/fan_out.rs"]
mod fan_out;
#[path = "../../examples/ledger.rs"]
mod ledger;
#[path = "../../examples/order.rs"]
mod order;
#[path = "../../examples/shutdown.rs"]
mod shutdown;
#[path = "../../examples/trip.rs"]
mod trip;
#[path = "../../examples/web_handler.rs"]
mod web_handler;

macro_rules! programs {
    ($($name:ident => $program:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            $program::main().expect("the example runs to its end");
        })*

        /// Every file in the folder is one of these.
        #[test]
        fn every_example_is_run() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            let files = std::fs::read_dir(folder).expect("the folder");
            let mut found: Vec<String> = files
                .map(|file| file.expect("a file").path())
                .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
                .collect();
            found.sort();
            assert_eq!(found, [$(stringify!($program)),*]);
        }
    };
}

programs! {
    an_endless_workflow_begins_anew => endless,
    a_parent_waits_for_its_children => fan_out,
    fa_09_a_ledger_comes_to_the_same_in_any_order => ledger,
    an_order_is_reserved_charged_and_signed => order,
    a_worker_that_stops_gives_back_its_runs => shutdown,
    a_trip_that_cannot_be_paid_is_given_back => trip,
    a_request_that_is_sent_again_gets_the_same_run => web_handler,
}
