//! Renders the course of a rate in a few characters: `▃▅▇▇█▇▁▇`.

use std::collections::VecDeque;

/// No terminal is wider.
const SAMPLES_MAX: usize = 512;

/// The last samples of a rate.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sparkline {
    samples: VecDeque<f64>,
}

impl Sparkline {
    /// Adds a sample, and drops the oldest one above the limit.
    pub(crate) fn push(&mut self, sample: f64) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Renders the last samples that fit. Heights start at zero, so that half the height is half
    /// the rate.
    pub(crate) fn render(&self, columns: usize) -> String {
        const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let shown = self.samples.iter().skip(self.samples.len().saturating_sub(columns));
        let highest = shown.clone().copied().fold(0.0, f64::max);
        shown
            .map(|sample| {
                let level = if highest > 0.0 { (sample / highest * 8.0).ceil() } else { 0.0 };
                LEVELS[(level as usize).clamp(1, 8) - 1]
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[f64]) -> Sparkline {
        let mut sparkline = Sparkline::default();
        samples.iter().for_each(|sample| sparkline.push(*sample));
        sparkline
    }

    #[test]
    fn heights_count_from_zero() {
        assert_eq!(of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).render(80), "▁▂▃▄▅▆▇█");
        assert_eq!(of(&[94.0, 94.1, 47.0, 0.0, 94.2]).render(80), "██▄▁█");
        assert_eq!(of(&[0.0, 0.0]).render(80), "▁▁");
    }

    #[test]
    fn the_last_ones_that_fit_are_shown_by_their_own_scale() {
        assert_eq!(of(&[100.0, 1.0, 2.0]).render(2), "▄█");
        assert_eq!(of(&[1.0]).render(0), "");
        assert_eq!(of(&[1.0; 600]).render(600).chars().count(), SAMPLES_MAX);
    }
}
