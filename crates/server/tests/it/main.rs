//! The server from outside: who may do what, and what it does with requests that mean no good.

mod api;
mod browser;
mod fuzz;
mod guards;
mod hardening;
mod limits;
mod lists;
mod matrix;
mod sql;
mod streams;
mod support;
mod tls;
mod traces;
mod vectors;
mod work;
