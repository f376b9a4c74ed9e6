//! aether-host

mod kernels;
