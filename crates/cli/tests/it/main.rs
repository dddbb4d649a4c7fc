//! The `roundel` command, as people and scripts use it.

mod backup;
mod browser;
mod canary;
mod commands;
mod cooperation;
mod demo;
mod doctor;
mod ends;
mod facts;
mod faults;
mod follow;
mod looks;
mod messages;
mod mounted;
mod moving;
mod pages;
mod projections;
mod queues;
mod reference;
mod schedules;
mod serve;
mod sql;
mod states;
mod support;
mod top;
mod verify;
