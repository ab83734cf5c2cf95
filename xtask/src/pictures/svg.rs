//! Renders a screen as SVG: text that can be searched and copied, on its own background, in the
//! reader's monospaced font.

use super::terminal::{Look, Run, Screen};

const FONT_SIZE: f32 = 14.0;
/// The width of a character in most monospaced fonts. Text is stretched to it, so that columns are
/// aligned in every font.
const CHARACTER: f32 = 8.4;
const LINE: f32 = 19.0;
const MARGIN: f32 = 16.0;

pub(crate) const GROUND: &str = "#16181d";
pub(crate) const TEXT: &str = "#e4e6eb";
const PROMPT: &str = "#7fd1a1";

/// Returns the image: the command, and its screen.
pub(super) fn render(command: &str, screen: &Screen) -> String {
    let columns = usize::from(screen.columns).max(command.chars().count() + 2);
    let width = columns as f32 * CHARACTER + 2.0 * MARGIN;
    let height = (screen.rows.len() + 1) as f32 * LINE + 2.0 * MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"{FONT_SIZE}\">\n\
         <title>{}</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n",
        escaped(command)
    );
    let prompt = |text: &str, column, colour: &str, weight: &str| line(text, column, 0, colour, 1.0, weight);
    text.push_str(&prompt("$", 0, PROMPT, "bold"));
    text.push_str(&prompt(command, 2, TEXT, "bold"));
    for (row, runs) in screen.rows.iter().enumerate() {
        for Run { column, text: words, look } in runs {
            let (colour, weight) = (colour(*look), if look.is_bold { "bold" } else { "normal" });
            let opacity = if look.is_faint { 0.65 } else { 1.0 };
            text.push_str(&line(words, *column, row + 1, colour, opacity, weight));
        }
    }
    text.push_str("</svg>\n");
    text
}

fn line(text: &str, column: u16, row: usize, colour: &str, opacity: f32, weight: &str) -> String {
    let (x, y) = (MARGIN + f32::from(column) * CHARACTER, MARGIN + row as f32 * LINE + FONT_SIZE);
    let length = text.chars().count() as f32 * CHARACTER;
    let weight = if weight == "bold" { " font-weight=\"bold\"" } else { "" };
    let opacity = if opacity < 1.0 { format!(" opacity=\"{opacity}\"") } else { String::new() };
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" lengthAdjust=\"spacingAndGlyphs\" xml:space=\"preserve\" \
         fill=\"{colour}\"{weight}{opacity}>{}</text>\n",
        escaped(text)
    )
}

/// Returns one of the eight colours of a terminal, readable on the background.
fn colour(look: Look) -> &'static str {
    match look.colour {
        vt100::Color::Idx(1 | 9) => "#ff7b72",
        vt100::Color::Idx(2 | 10) => "#7fd1a1",
        vt100::Color::Idx(3 | 11) => "#e3b341",
        vt100::Color::Idx(4 | 12) => "#79b8ff",
        vt100::Color::Idx(5 | 13) => "#d2a8ff",
        vt100::Color::Idx(6 | 14) => "#76d7ea",
        vt100::Color::Idx(8) => "#9aa0aa",
        _ => TEXT,
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_shows_cannot_break_the_picture() {
        let look = Look { colour: vt100::Color::Default, is_bold: false, is_faint: true };
        let run = Run { column: 3, text: "a<b>&c".to_owned(), look };
        let text = render("x < y", &Screen { columns: 80, rows: vec![vec![run]] });
        assert!(text.contains("a&lt;b&gt;&amp;c") && text.contains("<title>x &lt; y</title>"), "{text}");
        assert!(text.contains("opacity=\"0.65\""), "{text}");
    }
}
