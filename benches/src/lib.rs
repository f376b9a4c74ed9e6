//! What aether's speed is measured by: the limit of the machine's memory, and the clock under which aether,
//! the limit and other libraries take turns. The program `clock` runs it, through `cargo xtask bench`; the
//! criterion benches lie beside this folder.

pub mod aether;
pub mod cell;
pub mod collectives;
pub mod contender;
pub mod dtypes;
pub mod failure;
pub mod limit;
pub mod memory;
pub mod movers;
pub mod peers;
pub mod report;
pub mod results;
pub mod scaling;
pub mod setting;
pub mod statistics;
pub mod targets;
pub mod turns;
