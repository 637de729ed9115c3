//! The vertical axis of a chart: which values have a line, and where a value is.

/// At most so many steps from the bottom to the top.
const STEPS: f64 = 5.0;

pub(super) struct Vertical {
    lowest: f64,
    highest: f64,
    /// For a linear axis, the distance of two ticks.
    step: Option<f64>,
    bottom: f64,
    height: f64,
}

impl Vertical {
    /// One that has room for all of the values: linear from 0, or logarithmic.
    pub(super) fn of(values: &[f64], is_logarithmic: bool, bottom: f64, height: f64) -> Self {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let (lowest, highest, step) = if is_logarithmic {
            (round_down(least.min(most)), round_up(most), None)
        } else {
            let step = round_up(most / STEPS);
            (0.0, (most / step).ceil() * step, Some(step))
        };
        Self {
            lowest,
            highest,
            step,
            bottom,
            height,
        }
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        let share = match self.step {
            Some(_) => value / self.highest,
            None => (value / self.lowest).log10() / (self.highest / self.lowest).log10(),
        };
        self.bottom - self.height * share
    }

    pub(super) fn ticks(&self) -> Vec<f64> {
        let mut ticks = vec![self.lowest];
        while let Some(last) = ticks.last().copied() {
            let next = match self.step {
                Some(step) => last + step,
                // Past rounding errors, to the next of 1, 2, 5, 10.
                None => round_up(last * 1.1),
            };
            if next > self.highest * 1.001 {
                break;
            }
            ticks.push(next);
        }
        ticks
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powi(exponent(value));
    let leading = value / power;
    let rounded = [1.0, 2.0, 5.0].into_iter().find(|step| leading <= *step);
    decimal(rounded.unwrap_or(10.0) * power)
}

/// The last of them before it.
fn round_down(value: f64) -> f64 {
    let power = 10_f64.powi(exponent(value));
    let leading = value / power;
    let rounded = [5.0, 2.0].into_iter().find(|step| leading >= *step);
    decimal(rounded.unwrap_or(1.0) * power)
}

#[expect(clippy::cast_possible_truncation, reason = "a power of ten")]
fn exponent(value: f64) -> i32 {
    value.log10().floor() as i32
}

/// Without the last digits, in which powers of ten are not exact.
fn decimal(value: f64) -> f64 {
    if value < 1.0 {
        (value * 1e6).round() / 1e6
    } else {
        value.round()
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these are rounded")]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_nothing() {
        let vertical = Vertical::of(&[41_000.0, 5_000.0], false, 100.0, 100.0);
        assert_eq!(
            vertical.ticks(),
            [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]
        );
        assert_eq!(vertical.y(0.0), 100.0);
        assert_eq!(vertical.y(50_000.0), 0.0);
    }

    #[test]
    fn a_logarithmic_axis_has_each_of_1_2_and_5() {
        let vertical = Vertical::of(&[0.03, 1.3, 1.9], true, 100.0, 100.0);
        assert_eq!(vertical.ticks(), [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]);
        assert_eq!(vertical.y(0.02), 100.0);
        assert_eq!(vertical.y(2.0), 0.0);
    }
}
