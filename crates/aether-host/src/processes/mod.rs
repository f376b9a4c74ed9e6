//! Groups whose ranks are in several processes of one machine.
//!
//! Each rank has a segment of shared memory that it alone writes and the others map to read. It shows there
//! what it asks for and how far it is, and stages what others have to read; what lies in the shared heap of
//! its process is read where it is. So every rank writes its own memory alone, and one that was stopped
//! and goes on later can change nothing of anybody else's.

mod circles;
mod collective;
mod ear;
mod header;
pub(crate) mod heap;
mod join;
mod map;
mod member;
mod messages;
mod participant;
mod pod;
mod ranges;
mod shape;
mod table;
mod told;
mod trouble;
mod wire;
mod work;

pub(crate) use member::Member;
