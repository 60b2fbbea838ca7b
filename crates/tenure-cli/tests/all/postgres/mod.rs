//! The command on a real PostgreSQL server.

mod database;
mod migrate;
mod mixed;
mod refused;
