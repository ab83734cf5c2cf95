//! Displays a measurement on the terminal, with progress while it runs and charts of characters at
//! the end.

mod bounds;
pub(crate) mod histogram;
pub(crate) mod paint;
pub(crate) mod progress;
pub(crate) mod sparkline;

/// Renders a bar that fills this part of the columns, to an eighth of a column. Any part above zero
/// is visible.
fn bar(part: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let part = part.clamp(0.0, 1.0);
    let least = usize::from(part > 0.0);
    let eighths = ((part * columns as f64 * 8.0).round() as usize).max(least);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_exact_to_an_eighth() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(0.28, 4), "█▏");
        assert_eq!(bar(0.000_001, 4), "▏");
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(2.0, 2), "██");
    }
}
