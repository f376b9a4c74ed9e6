#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use super::slices::SliceReplicas;
use super::*;

const BATCH: usize = 128;

fn digits(seed: u64) -> (Perceptron, Prepared) {
    let table = Table::parse(DIGITS_NAME, DIGITS.as_bytes(), None).unwrap();
    let model = Perceptron { features: table.features, classes: table.classes.len() };
    (model, Prepared::new(&table, seed))
}

/// The weights after training on so many devices, and how many held-out rows they get right.
fn trained(devices: usize, epochs: u32, batch: usize, seed: u64) -> (Vec<f32>, usize) {
    let (model, data) = digits(seed);
    let mut rng = Rng::with_seed(seed);
    let initial = model.initial(&mut rng);
    let mut replicas = SliceReplicas::new(devices, model, &initial);
    fit(&mut replicas, &data.training, Plan { epochs, batch }, &mut rng).unwrap();
    assert_eq!(replicas.differing().unwrap(), [0; 0]);
    let weights = replicas.weights().unwrap();
    let right = correct(&model, &weights, &data.held_out);
    (weights, right)
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|it| f64::from(it) * f64::from(it)).sum::<f64>().sqrt()
}

#[test]
fn the_digits_are_what_their_readme_says() {
    let (model, data) = digits(1);
    assert_eq!((model.features, model.classes), (64, 10));
    assert_eq!((data.training.len(), data.held_out.len()), (1438, 359));
}

#[test]
fn the_defaults_learn_the_digits() {
    let TrainArgs { epochs, batch, seed, .. } = TrainArgs::default();
    let (_, right) = trained(4, epochs, batch.get(), seed);
    assert!(right * 100 >= 95 * 359, "{right} of 359");
}

#[test]
fn one_device_and_several_agree_after_an_epoch() {
    for batch in [BATCH, 100, 7, 1438] {
        let (one, _) = trained(1, 1, batch, 3);
        for devices in [2, 4, 7] {
            let (several, _) = trained(devices, 1, batch, 3);
            let distance = norm(one.iter().zip(&several).map(|(a, b)| a - b));
            let size = norm(one.iter().copied());
            assert!(distance <= 1e-5 * size, "{devices} devices: {distance} of {size}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_seed_others() {
    let bits =
        |seed| trained(3, 1, BATCH, seed).0.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(1), bits(1));
    assert_ne!(bits(1), bits(2));
}

#[test]
fn more_devices_than_samples_take_part() {
    let (one, right) = trained(1, 1, 5, 4);
    let (many, right_of_many) = trained(40, 1, 5, 4);
    assert_eq!((one, right), (many, right_of_many), "there is one block, and the rest is 0");
}

/// Replicas that were never in step.
struct Drifted;

impl Replicas for Drifted {
    fn devices(&self) -> Vec<String> {
        ["cpu:0", "cpu:1", "cpu:2"].map(String::from).into()
    }

    fn train(&mut self, _: &Batch, _: f32) -> Result<f64> {
        Ok(f64::NAN)
    }

    fn weights(&self) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }

    fn differing(&self) -> Result<Vec<usize>> {
        Ok(vec![1, 2])
    }
}

#[test]
fn replicas_that_differ_are_a_failure_that_names_their_devices() {
    let mut out = Vec::new();
    let failure = verdict(&mut out, &Drifted).unwrap_err();
    assert_eq!(failure.to_string(), "train: replicas differ: cpu:1, cpu:2");
    assert!(out.is_empty());
}

#[test]
fn a_loss_that_is_no_number_ends_the_training() {
    let (_, data) = digits(1);
    let plan = Plan { epochs: 2, batch: BATCH };
    let failure = fit(&mut Drifted, &data.training, plan, &mut Rng::with_seed(1)).unwrap_err();
    assert_eq!(failure.to_string(), "train: the loss is no number after epoch 1");
}
