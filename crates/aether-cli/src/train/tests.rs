#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use aether::Device;

use super::slices::SliceReplicas;
use super::*;

const BATCH: usize = 128;

fn digits(seed: u64) -> (Perceptron, Prepared) {
    let table = Table::parse(DIGITS_NAME, DIGITS.as_bytes(), None).unwrap();
    let model = Perceptron { features: table.features, classes: table.classes.len() };
    (model, Prepared::new(&table, seed))
}

/// The weights after training on so many devices, and how many held-out rows they get right.
fn trained(devices: u32, epochs: u32, batch: usize, seed: u64) -> (Vec<f32>, usize) {
    let (model, data) = digits(seed);
    let mut rng = Rng::with_seed(seed);
    let initial = model.initial(&mut rng);
    let mut replicas = OnDevices::start(&Device::cpus(devices), model, &initial).unwrap();
    fit(&mut replicas, &data.training, Plan { epochs, batch }, &mut rng).unwrap();
    assert_eq!(replicas.differing().unwrap(), [0; 0]);
    let weights = replicas.weights().unwrap();
    let right = correct(&model, &weights, &data.held_out).unwrap();
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
fn a_batch_of_any_size_learns_the_digits() {
    for (batch, epochs) in [(1, 3), (2, 5), (4, 5), (1438, 60)] {
        let (_, right) = trained(4, epochs, batch, 1);
        assert!(right * 100 >= 90 * 359, "{batch}: {right} of 359");
    }
}

#[test]
fn one_device_and_several_agree_after_an_epoch() {
    for batch in [BATCH, 100, 7, 1, 1438] {
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
fn devices_do_what_plain_memory_does() {
    let (model, data) = digits(2);
    // Blocks that are full, short and empty.
    for (devices, batch) in [(1, 128), (4, 128), (4, 100), (9, 50)] {
        let mut rng = Rng::with_seed(2);
        let initial = model.initial(&mut rng);
        let mut plain = SliceReplicas::new(devices, model, &initial);
        let devices = Device::cpus(devices as u32);
        let mut replicas = OnDevices::start(&devices, model, &initial).unwrap();
        let plan = Plan { epochs: 1, batch };
        let [expected, trained] = [&mut plain as &mut dyn Replicas, &mut replicas]
            .map(|it| fit(it, &data.training, plan, &mut rng.clone()).unwrap());
        assert_eq!(trained.loss, expected.loss);
        assert_eq!(replicas.weights().unwrap(), plain.weights().unwrap(), "{devices:?}");
    }
}

#[test]
fn replicas_stay_with_their_devices_in_the_order_of_the_group() {
    let (model, data) = digits(2);
    let initial = model.initial(&mut Rng::with_seed(2));
    let devices = [6, 1, 3].map(Device::cpu);
    let mut replicas = OnDevices::start(&devices, model, &initial).unwrap();
    assert_eq!(replicas.devices(), ["cpu:1", "cpu:3", "cpu:6"]);
    let mut batch = Batch::new(model.features, 50);
    batch.fill(&data.training, &(0..50).collect::<Vec<_>>());
    replicas.train(&batch, 0.1).unwrap();
    assert_ne!(replicas.weights().unwrap(), initial);
    replicas.weights.chunk_mut(1).unwrap().slice_mut::<u8>().unwrap()[77] ^= 1;
    assert_eq!(replicas.differing().unwrap(), [1]);
    let failure = verdict(&mut Vec::new(), &mut replicas).unwrap_err();
    assert_eq!(failure.to_string(), "train: replicas differ: cpu:3");
}

#[test]
fn a_device_that_stands_twice_in_the_list_is_refused() {
    let (model, _) = digits(2);
    let devices = [Device::cpu(2), Device::cpu(2)];
    let refused = OnDevices::start(&devices, model, &vec![0.0; model.parameters()]).err().unwrap();
    assert!(refused.to_string().contains("cpu:2"), "{refused}");
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

#[test]
fn a_step_follows_the_gradient_of_the_mean_loss_of_the_whole_batch() {
    let (model, data) = digits(1);
    let mut rng = Rng::with_seed(1);
    let initial = model.initial(&mut rng);
    let mut batch = Batch::new(model.features, 64);
    // Blocks of 32, 8 and no samples.
    batch.fill(&data.training, &(100..140).collect::<Vec<_>>());
    let values = batch.values().unwrap();
    let samples = Samples { features: &features(&values).unwrap(), labels: batch.labels() };
    let mut gradient = vec![0.0; initial.len()];
    let scratch = &mut Scratch::default();
    let expected_loss = model.gradient(&initial, samples, 1.0 / 40.0, scratch, &mut gradient);

    let mut replicas = OnDevices::start(&Device::cpus(3), model, &initial).unwrap();
    let loss = replicas.train(&batch, 0.5).unwrap();
    assert!((loss - expected_loss).abs() < 1e-4);
    let stepped = replicas.weights().unwrap();
    let expected = initial.iter().zip(&gradient).map(|(it, gradient)| it - 0.5 * gradient);
    let distance = norm(stepped.iter().zip(expected).map(|(a, b)| a - b));
    assert!(distance < 1e-6 * norm(stepped.iter().copied()), "{distance}");
}

/// Takes note of the classes of every batch.
#[derive(Default)]
struct Noting(Vec<Vec<u32>>);

impl Replicas for Noting {
    fn devices(&self) -> Vec<String> {
        Vec::new()
    }

    fn train(&mut self, batch: &Batch, _: f32) -> Result<f64> {
        self.0.push(batch.labels().to_vec());
        Ok(0.0)
    }

    fn weights(&self) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }

    fn differing(&mut self) -> Result<Vec<usize>> {
        Ok(Vec::new())
    }
}

#[test]
fn every_epoch_uses_every_row_once_in_an_order_of_its_own() {
    let (_, data) = digits(1);
    let mut noting = Noting::default();
    let plan = Plan { epochs: 3, batch: 100 };
    let trained = fit(&mut noting, &data.training, plan, &mut Rng::with_seed(1)).unwrap();
    assert_eq!(trained.samples, 3 * 1438);
    let sizes: Vec<usize> = noting.0.iter().map(Vec::len).collect();
    assert_eq!(sizes, [[100; 14].as_slice(), &[38]].concat().repeat(3));
    let sorted = |mut labels: Vec<u32>| {
        labels.sort_unstable();
        labels
    };
    let epochs: Vec<Vec<u32>> = noting.0.chunks(15).map(<[_]>::concat).collect();
    let all = sorted(data.training.labels.clone());
    assert!(epochs.iter().all(|it| sorted(it.clone()) == all));
    assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2] && epochs[0] != epochs[2]);
    assert!(epochs.iter().all(|it| *it != data.training.labels));
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

    fn differing(&mut self) -> Result<Vec<usize>> {
        Ok(vec![1, 2])
    }
}

#[test]
fn replicas_that_differ_are_a_failure_that_names_their_devices() {
    let mut out = Vec::new();
    let failure = verdict(&mut out, &mut Drifted).unwrap_err();
    assert_eq!(failure.to_string(), "train: replicas differ: cpu:1, cpu:2");
    assert!(out.is_empty());
}

#[test]
fn a_loss_that_is_no_number_ends_the_training() {
    let (_, data) = digits(1);
    let plan = Plan { epochs: 2, batch: BATCH };
    let failure = fit(&mut Drifted, &data.training, plan, &mut Rng::with_seed(1)).unwrap_err();
    let line = "train: the loss is no number after epoch 1; ";
    assert!(failure.to_string().starts_with(line), "{failure}");
}
