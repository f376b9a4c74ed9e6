//! aether-conformance
