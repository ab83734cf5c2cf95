//! Masks figures, so that two outputs that differ only in figures are equal.

/// Returns the line with every number as `N`, units without their prefix, and single spaces:
/// `written  2048 pages in 16.1 ms` becomes `written N pages in N s`.
pub(super) fn masked(line: &str) -> String {
    line.split_whitespace().map(|word| without_prefix(&without_numbers(word))).collect::<Vec<_>>().join(" ")
}

/// Characters within a number: `10.0.0.7:0`, `2,048`.
const JOINTS: [char; 3] = ['.', ',', ':'];

fn without_numbers(word: &str) -> String {
    let mut masked = String::new();
    let mut rest = word.chars().peekable();
    while let Some(character) = rest.next() {
        if !character.is_ascii_digit() {
            masked.push(character);
            continue;
        }
        masked.push('N');
        // Such a character is part of the number only if a digit follows.
        loop {
            let mut ahead = rest.clone();
            let is_joint = ahead.next().is_some_and(|next| JOINTS.contains(&next));
            if rest.peek().is_some_and(char::is_ascii_digit) {
                rest.next();
            } else if is_joint && ahead.peek().is_some_and(char::is_ascii_digit) {
                rest = ahead;
            } else {
                break;
            }
        }
    }
    masked
}

/// Units that depend on the speed of the machine, with the unit that replaces them.
const UNITS: [(&str, &[&str]); 3] = [
    ("s", &["ns", "µs", "ms"]),
    ("b/s", &["kb/s", "Mb/s", "Gb/s", "Tb/s"]),
    ("B/s", &["KiB/s", "MiB/s", "GiB/s", "TiB/s"]),
];

fn without_prefix(word: &str) -> String {
    let bare = word.trim_end_matches([',', ')', ';', ':']);
    let end = &word[bare.len()..];
    // There may be no space between a number and its unit.
    let (number, bare) = bare.strip_prefix('N').map_or(("", bare), |unit| ("N", unit));
    match UNITS.iter().find(|(_, units)| units.contains(&bare)) {
        Some((unit, _)) => format!("{number}{unit}{end}"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_masked_and_words_are_not() {
        for (line, expected) in [
            ("tcp   no    tcp, 10.0.0.7:0", "tcp no tcp, N"),
            ("rate      66.6 Gb/s, 7.76 GiB/s", "rate N b/s, N B/s"),
            ("rate      950 Mb/s, 113 MiB/s", "rate N b/s, N B/s"),
            ("128 MiB in 16.1 ms", "N MiB in N s"),
            ("17 operations, 242.356µs", "N operations, Ns"),
            ("17 operations, 1.2ms", "N operations, Ns"),
            ("RAIL  RDMA", "RAIL RDMA"),
        ] {
            assert_eq!(masked(line), expected);
        }
    }
}
