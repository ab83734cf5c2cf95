//! Completion, in a real bash.

use crate::support::bash::offers;

#[test]
fn subcommands_flags_and_values_are_completed() {
    assert_eq!(offers(&["pi"]), ["ping"]);
    assert_eq!(offers(&["ping", "--wa"]), ["--wait"]);
    assert_eq!(offers(&["ping", "peer", "--wait", ""]), ["busy", "event", "adaptive"]);
    assert_eq!(offers(&["completions", "z"]), ["zsh"]);
}

#[test]
fn what_is_hidden_is_not_offered() {
    let [commands, flags] = [&[""][..], &["fill", "--"]].map(offers);
    assert!(commands.contains(&"fill".to_owned()) && !commands.contains(&"agent".to_owned()), "{commands:?}");
    assert!(flags.contains(&"--seed".to_owned()) && !flags.contains(&"--alter-byte".to_owned()), "{flags:?}");
}
