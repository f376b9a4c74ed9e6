//! The step from one set of parameters to the next.

/// Gradient descent with momentum. Every replica takes the same step from the same bits, so the
/// replicas stay the same bits; and a gradient that differs by a rounding moves the parameters by a
/// rounding, which methods that divide by the gradient's own size don't promise.
pub(crate) fn momentum_step(
    parameters: &mut [f32],
    velocities: &mut [f32],
    gradient: &[f32],
    rate: f32,
) {
    for ((parameter, velocity), gradient) in parameters.iter_mut().zip(velocities).zip(gradient) {
        *velocity = MOMENTUM * *velocity + gradient;
        *parameter -= rate * *velocity;
    }
}

/// How much of a step the next one repeats.
const MOMENTUM: f32 = 0.9;

/// The rate of every step: it rises over the first twentieth of them, and falls to 0 by the end. A
/// step over few samples follows a gradient that is mostly noise, so its rate is smaller in
/// proportion; otherwise training diverges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    steps: u32,
}

impl Schedule {
    const LARGEST: f32 = 0.1;
    /// From this many samples on, the rate is as large as it gets.
    const ENOUGH: usize = 32;

    pub(crate) fn new(steps: u32) -> Self {
        Self { steps }
    }

    /// The rate of step `step`, counted from 0, over so many samples.
    pub(crate) fn rate(&self, step: u32, samples: usize) -> f32 {
        let rise = (self.steps / 20).max(1);
        let rising = (step + 1) as f32 / rise as f32;
        let falling = self.steps.saturating_sub(step) as f32 / self.steps.max(1) as f32;
        let share = samples.min(Self::ENOUGH) as f32 / Self::ENOUGH as f32;
        Self::LARGEST * share * rising.min(falling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_repeats_nine_tenths_of_the_last() {
        let (mut parameters, mut velocities) = ([1.0, 2.0], [0.0, 0.0]);
        momentum_step(&mut parameters, &mut velocities, &[1.0, -1.0], 0.5);
        assert_eq!(parameters, [0.5, 2.5]);
        momentum_step(&mut parameters, &mut velocities, &[0.0, 1.0], 0.5);
        assert_eq!(velocities, [0.9, -0.9 + 1.0]);
        assert_eq!(parameters, [0.5 - 0.5 * 0.9, 2.5 - 0.5 * (-0.9 + 1.0)]);
    }

    #[test]
    fn the_rate_rises_falls_and_is_never_0_or_too_large() {
        for steps in [1, 2, 19, 100, 360] {
            let rates: Vec<f32> = (0..steps).map(|it| Schedule::new(steps).rate(it, 128)).collect();
            assert!(rates.iter().all(|it| *it > 0.0 && *it <= Schedule::LARGEST), "{steps}");
            let top = rates.iter().position(|it| *it == rates.iter().copied().fold(0.0, f32::max));
            assert!(top <= Some(steps as usize / 20), "{steps}: {top:?}");
            assert!(
                rates.iter().skip(steps as usize / 20 + 1).is_sorted_by(|a, b| a > b),
                "{steps}"
            );
        }
    }

    #[test]
    fn the_rate_is_in_proportion_to_few_samples_and_the_same_for_many() {
        let rate = |samples| Schedule::new(100).rate(10, samples);
        assert_eq!(rate(1) * 32.0, rate(32));
        assert_eq!(rate(8) * 4.0, rate(32));
        assert_eq!(rate(32), rate(1438));
    }
}
