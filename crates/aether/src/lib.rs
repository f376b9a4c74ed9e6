//! aether
