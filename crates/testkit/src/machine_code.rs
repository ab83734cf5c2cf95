//! Checks the machine code of functions that are called for every operation.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds an example of a package for release, and checks that each of these functions consists of
/// at most `instructions_max` instructions on each of its paths, that each path ends with one call or
/// jump through a table, and that none calls or jumps elsewhere. A function has at most two paths:
/// with and without a note of the call for other threads.
#[track_caller]
pub fn assert_jumps_through_table(package: &str, example: &str, functions: &[&str], instructions_max: usize) {
    let binary = build_example(package, example);
    for function in functions {
        let code = disassemble(&binary, function);
        if let Err(fault) = judge(&code, instructions_max) {
            panic!("{function} {fault}:\n{}", code.join("\n"));
        }
    }
}

fn judge(code: &[String], instructions_max: usize) -> Result<(), String> {
    let branches: Vec<&String> = code.iter().filter(|line| is_branch(line)).collect();
    match branches[..] {
        [] => Err("does not reach the table".to_owned()),
        [only] if !is_through_table(only) => Err("jumps elsewhere than through the table".to_owned()),
        [_] if code.len() > instructions_max => {
            Err(format!("has {} instructions, more than {instructions_max}", code.len()))
        }
        [_] => Ok(()),
        // Whether the call is noted; then the table, with and without the note.
        [local, noted, plain] if is_local(local) && is_through_table(noted) && is_through_table(plain) => {
            match code.len() > 2 * instructions_max + NOTE {
                true => {
                    Err(format!("has {} instructions, more than {instructions_max} and the note", code.len()))
                }
                false => Ok(()),
            }
        }
        _ => Err("has a call or jump beside the table's".to_owned()),
    }
}

/// The instructions of a note: where it goes, what it is, and its end.
const NOTE: usize = 6;

fn build_example(package: &str, example: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", package, "--example", example, "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let messages = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = messages.split("\"executable\":\"").nth(1).and_then(|rest| rest.split('"').next());
    PathBuf::from(path.expect("cargo names the executable that it built"))
}

/// Returns the instructions of one function, one per line, as mnemonic and operands.
fn disassemble(binary: &Path, function: &str) -> Vec<String> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", &format!("--disassemble={function}")])
        .arg(binary)
        .output()
        .expect("objdump is installed, because binutils has the linker");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = instructions(&text);
    assert!(!code.is_empty(), "{function} is not in {}:\n{text}", binary.display());
    code
}

fn instructions(disassembly: &str) -> Vec<String> {
    disassembly
        .lines()
        .filter_map(|line| line.split_once(":\t"))
        .map(|(_, instruction)| instruction.trim().to_owned())
        .filter(|instruction| !is_padding(instruction))
        .collect()
}

fn is_padding(instruction: &str) -> bool {
    ["nop", "int3", "xchg   %ax,%ax", "udf", "cs nop", "data16"]
        .iter()
        .any(|pad| instruction.starts_with(pad))
}

/// Returns `true` for a call or a jump. A return is neither.
fn is_branch(instruction: &str) -> bool {
    let mnemonic = instruction.split_whitespace().next().unwrap_or_default();
    match std::env::consts::ARCH {
        "x86_64" => mnemonic.starts_with("call") || mnemonic.starts_with('j'),
        "aarch64" => {
            matches!(mnemonic, "b" | "bl" | "br" | "blr" | "cbz" | "cbnz" | "tbz" | "tbnz")
                || mnemonic.starts_with("b.")
        }
        other => panic!("this check does not know the branches of {other}"),
    }
}

/// Returns `true` if a branch goes through a table. A target relative to the instruction pointer is
/// a function of the program or of a library, not a table's entry.
fn is_through_table(instruction: &str) -> bool {
    match std::env::consts::ARCH {
        "x86_64" => instruction.contains('*') && !instruction.contains("%rip"),
        _ => instruction.starts_with("br") || instruction.starts_with("blr"),
    }
}

/// Returns `true` for a conditional jump within its function.
fn is_local(instruction: &str) -> bool {
    let mnemonic = instruction.split_whitespace().next().unwrap_or_default();
    let is_conditional = match std::env::consts::ARCH {
        "x86_64" => mnemonic == "je" || mnemonic == "jne",
        _ => matches!(mnemonic, "cbz" | "cbnz"),
    };
    is_conditional && instruction.contains('+')
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// With a note of the call, if the thread is observed.
    const NOTED: &str = "
0000000000001139 <post_send>:
    1139:\tmov    %fs:(%rax),%rbx
    113c:\tje     1150 <post_send+0x17>
    113f:\tmov    %rax,(%rbx)
    1142:\tcall   *0x30(%rax)
    1147:\tret
    1150:\tjmp    *0x30(%rax)
";

    #[test]
    fn a_note_is_no_call() {
        assert_eq!(judged(NOTED), Ok(()));
        assert!(judged(&NOTED.replace("call   *0x30(%rax)", "call   1234 <other>")).is_err());
        assert!(judged(&NOTED.replace("je     1150 <post_send+0x17>", "je     1150 <other>")).is_err());
    }

    /// `ibv_post_send` of C, as gcc compiles it.
    const GOOD: &str = "
0000000000001139 <post_send>:
    1139:\tmov    (%rdi),%rax
    113c:\tjmp    *0xb8(%rax)
    1142:\tnopw   0x0(%rax,%rax,1)
";

    fn judged(text: &str) -> Result<(), String> {
        judge(&instructions(text), 3)
    }

    #[test]
    fn loads_and_one_jump_pass() {
        assert_eq!(instructions(GOOD), ["mov    (%rdi),%rax", "jmp    *0xb8(%rax)"]);
        assert_eq!(judged(GOOD), Ok(()));
        assert_eq!(judged(&GOOD.replace("jmp ", "call ")), Ok(()), "a frame may be needed");
    }

    #[test]
    fn every_other_way_out_is_found() {
        let beside =
            |line: &str| judged(&GOOD.replace("    113c:", &format!("    1138:\t{line}\n    113c:")));
        for line in ["call   20a0 <helper>", "je     1150 <post_send+0x17>", "call   *0x2fe2(%rip)"] {
            assert!(beside(line).is_err(), "{line}");
        }
        for line in ["jmp    20a0 <helper>", "jmp    *0x2fe2(%rip)", "ret"] {
            assert!(judged(&GOOD.replace("jmp    *0xb8(%rax)", line)).is_err(), "{line}");
        }
        assert_eq!(beside("mov    %rsi,%rcx"), Ok(()));
        assert!(
            judged(&GOOD.replace("    113c:", "    1:\tpush %rax\n    2:\tpop %rax\n    113c:")).is_err()
        );
    }
}
