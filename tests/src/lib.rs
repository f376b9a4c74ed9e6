//! Tests of what shows only when crates meet; they are in `tests/`. The examples of the workspace's
//! front page are compiled and run here.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct FrontPage;
