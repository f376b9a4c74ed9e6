//! Aether as a contender, through its public interface: typed blocking calls on chunks, with hazards,
//! checks and deadlines as they are by default.

mod set;
mod threads;

pub use set::Set;
pub use threads::Threads;

#[cfg(test)]
mod tests;
