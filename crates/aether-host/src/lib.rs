//! aether-host
