//! Formats the rows as CSV: one line each, and every figure with the minimum and maximum of its
//! repetitions.

use super::figures::Figures;
use super::row::Row;

type Figure = fn(&Figures) -> Option<f64>;

/// The figures and their column names.
const FIGURES: [(&str, Figure); 7] = [
    ("operations_per_second", |it| Some(it.operations_per_second)),
    ("bits_per_second", |it| Some(it.bits_per_second)),
    ("latency_p50_ns", |it| it.latency_p50_ns.map(|ns| ns as f64)),
    ("latency_p99_ns", |it| it.latency_p99_ns.map(|ns| ns as f64)),
    ("latency_max_ns", |it| it.latency_max_ns.map(|ns| ns as f64)),
    ("cpu_here_ns_per_operation", |it| it.cpu_here_ns_per_operation),
    ("cpu_peer_ns_per_operation", |it| it.cpu_peer_ns_per_operation),
];

/// Formats a heading and a line for each row. Figures that were not measured are empty.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut heading: Vec<String> =
        ["operation", "size_bytes", "depth", "queues", "rails", "repetitions"].map(str::to_owned).to_vec();
    for (name, _) in FIGURES {
        heading.extend([name.to_owned(), format!("{name}_min"), format!("{name}_max")]);
    }
    let lines = rows.iter().map(|row| {
        let key = &row.key;
        let mut cells = vec![
            quoted(&key.operation),
            key.size_bytes.to_string(),
            key.depth.to_string(),
            key.queues.to_string(),
            quoted(&key.rails.join("+")),
            row.repetitions.len().to_string(),
        ];
        for (_, figure) in FIGURES {
            for figures in [&row.median, &row.spread.min, &row.spread.max] {
                cells.push(figure(figures).map_or(String::new(), |value| value.to_string()));
            }
        }
        cells.join(",")
    });
    [heading.join(",")].into_iter().chain(lines).map(|line| line + "\n").collect()
}

/// Quotes a text that contains a comma or quote (RFC 4180), or a semicolon as in `tcp;ofi_rxm`: in
/// locales with a decimal comma, spreadsheets separate cells by semicolons.
fn quoted(text: &str) -> String {
    if text.contains([',', ';', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_row_is_a_line_and_what_is_missing_is_empty() {
        let mut row = sample::row("write", 1000, 1, &[500_000.0, 250_000.0, 1e6]);
        row.key.rails = vec!["tcp;ofi_rxm".to_owned(), "rxe0".to_owned()];
        for figures in [&mut row.median, &mut row.spread.min, &mut row.spread.max] {
            figures.cpu_peer_ns_per_operation = None;
        }
        assert_eq!(
            render(&[row]),
            "operation,size_bytes,depth,queues,rails,repetitions,\
             operations_per_second,operations_per_second_min,operations_per_second_max,\
             bits_per_second,bits_per_second_min,bits_per_second_max,\
             latency_p50_ns,latency_p50_ns_min,latency_p50_ns_max,\
             latency_p99_ns,latency_p99_ns_min,latency_p99_ns_max,\
             latency_max_ns,latency_max_ns_min,latency_max_ns_max,\
             cpu_here_ns_per_operation,cpu_here_ns_per_operation_min,cpu_here_ns_per_operation_max,\
             cpu_peer_ns_per_operation,cpu_peer_ns_per_operation_min,cpu_peer_ns_per_operation_max\n\
             write,1000,1,1,\"tcp;ofi_rxm+rxe0\",3,500000,250000,1000000,4000000000,2000000000,8000000000,\
             2000,1000,4000,2800,1400,5600,20000,10000,40000,181,181,181,,,\n"
        );
    }

    #[test]
    fn quotes_are_doubled() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
