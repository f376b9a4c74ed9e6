//! What can be timed.

use std::fmt;
use std::str::FromStr;

/// One operation of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    AllGather,
    AllReduce,
    AllToAll,
    /// The root takes part in place, like in MPI_Bcast.
    Broadcast,
    /// Every rank copies on its own device, without any other.
    Memcpy,
    ReduceScatter,
    /// One source is copied to every device.
    Replicate,
    /// The root's chunks go to one rank each.
    Scatter,
    /// Every rank sends to the next and receives from the one before.
    SendRecv,
}

impl Op {
    /// Every operation, in the order of `all`.
    const ALL: [Self; 9] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::AllToAll,
        Self::SendRecv,
        Self::Replicate,
        Self::Scatter,
        Self::Memcpy,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all_gather",
            Self::AllReduce => "all_reduce",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
            Self::Memcpy => "memcpy",
            Self::ReduceScatter => "reduce_scatter",
            Self::Replicate => "replicate",
            Self::Scatter => "scatter",
            Self::SendRecv => "send_recv",
        }
    }

    /// Whether elements are added up, or whatever the reduction is.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter)
    }

    /// Whether `--in-place` changes anything.
    pub(crate) fn can_be_in_place(self) -> bool {
        matches!(self, Self::AllGather | Self::AllReduce | Self::ReduceScatter)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One operation, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selection(&'static [Op]);

impl Selection {
    /// The words that are understood.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Op::ALL.into_iter().map(Op::name).chain(["all"])
    }

    pub(crate) fn parts(self) -> &'static [Op] {
        self.0
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const ALL: &[Op] = &Op::ALL;
        if text == "all" {
            return Ok(Self(ALL));
        }
        let found = ALL.chunks(1).find(|it| it.iter().any(|it| it.name() == text));
        found.map(Self).ok_or_else(|| format!("no operation is called `{text}`"))
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [op] => op.fmt(f),
            _ => f.pad("all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_what_it_prints_as() {
        for name in Selection::names() {
            let selection = name.parse::<Selection>();
            assert_eq!(selection.map(|it| it.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("all".parse::<Selection>().map(|it| it.parts().len()), Ok(9));
        assert_eq!("memcpy".parse(), Ok(Selection(&[Op::Memcpy])));
        assert!("reduce".parse::<Selection>().is_err());
    }
}
