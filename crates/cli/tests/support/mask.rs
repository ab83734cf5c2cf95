//! What a person reads, without what differs from run to run.

/// Figures, and the units that were chosen for them, are masked; so are rails, by these names.
pub(crate) fn masked(text: &str, rails: &[&str]) -> String {
    let lines = text.lines().map(|line| {
        let line = rails.iter().fold(line.to_owned(), |line, rail| line.replace(rail, "RAIL"));
        let mut words: Vec<String> = Vec::new();
        for word in line.split_whitespace() {
            let word = number(word);
            let is_unit = words.last().is_some_and(|before| before.ends_with('N')) && is_unit(&word);
            words.push(if is_unit { format!("UNIT{}", punctuation(&word)) } else { word });
        }
        words.join(" ") + "\n"
    });
    lines.collect()
}

/// `127.0.0.1:4711` is `N:N`.
fn number(word: &str) -> String {
    let mut masked = String::new();
    for letter in word.chars() {
        match letter {
            '0'..='9' | '.' if masked.ends_with('N') => {}
            '0'..='9' => masked.push('N'),
            letter => masked.push(letter),
        }
    }
    masked
}

fn punctuation(word: &str) -> &str {
    &word[word.trim_end_matches([',', ')', ':']).len()..]
}

fn is_unit(word: &str) -> bool {
    const UNITS: [&str; 20] = [
        "b/s", "kb/s", "Mb/s", "Gb/s", "B/s", "KiB/s", "MiB/s", "GiB/s", "/s", "k/s", "M/s", "B", "KiB",
        "MiB", "GiB", "ns", "µs", "ms", "s", "min",
    ];
    UNITS.contains(&word.trim_end_matches([',', ')', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_their_units_and_the_rail_are_masked() {
        let text =
            "fill from 127.0.0.1:4711 over tcp 127.0.0.1 (no RDMA)\nrate   6.12 Gb/s, 730 MiB/s (3 k/s)\n";
        let expected = "fill from N:N over RAIL (no RDMA)\nrate N UNIT, N UNIT (N UNIT)\n";
        assert_eq!(masked(text, &["tcp 127.0.0.1"]), expected);
    }
}
