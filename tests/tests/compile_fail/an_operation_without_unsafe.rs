use aether::{Error, Operation, Result, Step};

struct Nothing;

impl Operation for Nothing {
    fn issue(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn advance(&self, _: u64) -> Result<Step> {
        Ok(Step::Issued)
    }

    fn refused(&self, _: u64, _: &Error) {}
}

fn main() {
    println!("{:?}", Nothing.issue(0));
}
