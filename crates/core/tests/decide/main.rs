//! The rules, without a database: what each operation answers and changes.

mod check;
mod children;
mod continuing;
mod deletes;
mod facts;
mod incoming;
mod leases;
mod limits;
mod offers;
mod operators;
mod projections;
mod property;
mod queues;
mod rounds;
mod signals;
mod sparse;
mod starts;
mod suspects;
mod times;
mod world;
