//! The benches of aether; see the files beside this one.
