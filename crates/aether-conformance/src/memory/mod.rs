//! stub
pub mod programs;
