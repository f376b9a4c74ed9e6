//! aether-residency
