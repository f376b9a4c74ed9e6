//! The reductions.

use std::fmt;
use std::str::FromStr;

use aether_core::{Error, ErrorKind};

/// How the ranks' elements become one.
///
/// Every reduction goes in rank order, rank 0 first, for every element. Halves and eighths are
/// accumulated in f32 and rounded once, to nearest even; f32, f64 and integers in their own type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ReduceOp {
    /// The largest. NaN wins, and +0 is larger than -0.
    Max,
    /// The sum in the accumulator divided once by the number of ranks; of integers the exact mean,
    /// truncated toward zero.
    Mean,
    /// The smallest. NaN wins, and -0 is smaller than +0.
    Min,
    /// The product; of integers it wraps.
    Prod,
    /// The sum; of integers it wraps.
    Sum,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [Self; 5] = [Self::Max, Self::Mean, Self::Min, Self::Prod, Self::Sum];

    /// The name, as [`ReduceOp::from_str`] reads it: `sum`, `mean`, `prod`, `min`, `max`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Prod => "prod",
            Self::Sum => "sum",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::new(
                ErrorKind::Parse,
                "parse a reduction",
                format!("`{text}` is none of {known}"),
            )
        })
    }
}
