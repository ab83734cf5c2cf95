//! What a real bash offers when Tab is pressed.

use std::process::{Command, Stdio};

use super::run::{FARREACH, end_of};

/// Takes the script that the command prints, and asks what bash has registered for it, as bash itself does.
const PRESS_TAB: &str = r#"
source <(farreach completions bash) || exit
read -r -a registered < <(complete -p farreach)
for ((i = 0; i < ${#registered[@]}; i++)); do
    [ "${registered[i]}" != -F ] || function=${registered[i + 1]}
done
COMP_WORDS=(farreach "$@") COMP_CWORD=$# COMP_TYPE=9
$function farreach "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// What may stand in the place of the last of these words.
pub(crate) fn offers(words: &[&str]) -> Vec<String> {
    let folder = FARREACH.rsplit_once('/').expect("it lies in a folder").0;
    let path = format!("{folder}:{}", std::env::var("PATH").expect("a PATH"));
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", PRESS_TAB, "bash"]).args(words).env("PATH", path).stdin(Stdio::null());
    let ended = end_of(&mut bash);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}: {ended:#?}");
    ended.stdout.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}
