//! `aether train`: one network, replicated over several devices, that learns from one table.

mod batch;
mod choice;
mod member;
mod replicas;
#[cfg(test)]
mod slices;

use std::io::Write;
use std::time::{Duration, Instant};

use aether::World;
use fastrand::Rng;

use crate::cli::{DeviceChoice, TrainArgs};
use crate::failure::{Failure, Result};
use crate::model::{Perceptron, Samples, Schedule, Scratch};
use crate::progress::Progress;
use crate::table::{Dataset, Prepared, Table};
use batch::{Batch, features};
use member::Member;
use replicas::{OnDevices, Replicas};

/// The data set in data/, so that the program works wherever it is run.
const DIGITS: &str = include_str!("../../../data/digits.csv");
const DIGITS_NAME: &str = "data/digits.csv (built in)";

/// Trains, prints what came of it, and fails if the replicas are not the same bits at the end.
pub(crate) fn run(args: &TrainArgs, out: &mut dyn Write) -> Result<()> {
    let target = args.target.as_deref();
    let (name, table) = match &args.data {
        Some(path) => (path.display().to_string(), Table::read(path, target)?),
        None => (DIGITS_NAME.to_owned(), Table::parse(DIGITS_NAME, DIGITS.as_bytes(), target)?),
    };
    let data = Prepared::new(&table, args.seed);
    let model = Perceptron { features: table.features, classes: table.classes.len() };
    let mut rng = Rng::with_seed(args.seed);
    let initial = model.initial(&mut rng);
    let mut replicas: Box<dyn Replicas> = match World::find()? {
        None => Box::new(OnDevices::start(&choice::devices(&args.devices)?, model, &initial)?),
        Some(world) => {
            if args.devices != DeviceChoice::default() {
                return Err(Failure::new(format!(
                    "train on {}: {} started this process as one rank, which has one device",
                    args.devices,
                    world.launcher()
                )));
            }
            Box::new(Member::join(&*world.rendezvous("train")?, model, &initial)?)
        }
    };
    let mut nobody = std::io::sink();
    let out = if replicas.tells() { out } else { &mut nobody };

    writeln!(
        out,
        "data: {name}, {} rows of {} features in {} classes, {} of them held out",
        table.labels.len(),
        table.features,
        table.classes.len(),
        data.held_out.len(),
    )?;
    writeln!(out, "devices: {}", replicas.devices().join(" "))?;
    let plan = Plan { epochs: args.epochs, batch: args.batch.get().min(data.training.len()) };
    let trained = fit(&mut *replicas, &data.training, plan, &mut rng)?;
    let right = correct(&model, &replicas.weights()?, &data.held_out)?;
    report(out, &trained, right, data.held_out.len())?;
    verdict(out, &mut *replicas)
}

/// How long to train, and in what portions.
#[derive(Clone, Copy, Debug)]
struct Plan {
    epochs: u32,
    batch: usize,
}

#[derive(Debug)]
struct Trained {
    /// The mean over the last epoch.
    loss: f64,
    samples: u64,
    took: Duration,
}

fn fit(replicas: &mut dyn Replicas, data: &Dataset, plan: Plan, rng: &mut Rng) -> Result<Trained> {
    let batches = data.len().div_ceil(plan.batch);
    let steps = u32::try_from(batches).ok().and_then(|it| it.checked_mul(plan.epochs));
    let steps = steps.ok_or_else(|| {
        Failure::new(format!("train: {} epochs of {batches} steps are too many", plan.epochs))
    })?;
    let schedule = Schedule::new(steps);
    let mut order: Vec<usize> = (0..data.len()).collect();
    let mut batch = Batch::new(data.features, plan.batch);
    let mut progress = match replicas.tells() {
        true => Progress::start("train", "epoch", plan.epochs.into()),
        false => Progress::Nothing,
    };
    let mut trained = Trained { loss: 0.0, samples: 0, took: Duration::ZERO };
    let mut step = 0;
    let start = Instant::now();
    for epoch in 1..=plan.epochs {
        rng.shuffle(&mut order);
        let mut loss = 0.0;
        for rows in order.chunks(plan.batch) {
            batch.fill(data, rows);
            loss += replicas.train(&batch, schedule.rate(step, rows.len()))?;
            step += 1;
        }
        trained.loss = loss / data.len() as f64;
        trained.samples += data.len() as u64;
        if !trained.loss.is_finite() {
            return Err(Failure::new(format!(
                "train: the loss is no number after epoch {epoch}; another --seed or a larger \
                 --batch may help"
            )));
        }
        progress.advance(&format!("loss {:.4}", trained.loss));
    }
    trained.took = start.elapsed();
    Ok(trained)
}

fn correct(model: &Perceptron, weights: &[f32], data: &Dataset) -> Result<usize> {
    let rows: Vec<usize> = (0..data.len()).collect();
    let mut batch = Batch::new(data.features, data.len());
    batch.fill(data, &rows);
    let samples = Samples { features: &features(&batch.values()?)?, labels: batch.labels() };
    Ok(model.correct(weights, samples, &mut Scratch::default()))
}

fn report(out: &mut dyn Write, trained: &Trained, right: usize, of: usize) -> Result<()> {
    let seconds = trained.took.as_secs_f64().max(f64::MIN_POSITIVE);
    writeln!(out, "loss: {:.4}", trained.loss)?;
    let percent = 100.0 * right as f64 / of as f64;
    writeln!(out, "accuracy: {percent:.2} % ({right} of {of} held-out rows)")?;
    writeln!(out, "speed: {:.0} samples per second", trained.samples as f64 / seconds)?;
    Ok(())
}

fn verdict(out: &mut dyn Write, replicas: &mut dyn Replicas) -> Result<()> {
    let differing = replicas.differing()?;
    if differing.is_empty() {
        writeln!(out, "replicas identical")?;
        return Ok(());
    }
    let devices = replicas.devices();
    let named: Vec<&str> =
        differing.iter().filter_map(|it| devices.get(*it)).map(String::as_str).collect();
    Err(Failure::new(format!("train: replicas differ: {}", named.join(", "))))
}

#[cfg(test)]
#[path = "train/tests.rs"]
mod tests;
