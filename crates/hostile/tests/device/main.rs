//! Forged names over a real RDMA device, in a guest: none may reach what is another peer's.

/// The attacks do not depend on the guest.
mod one_guest {
    use std::process::Command;

    use farreach_testkit::Device;

    /// The bars of service are not judged: an emulated machine is too slow for them.
    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn forged_names_reach_nothing_of_another_peer() {
        let device = Device::find().name;
        let words = ["drive", "--rail", &device, "--no-load", "--short"];
        let lines = ["keys", "marks", "immediates", "frames"];
        let output = Command::new(env!("CARGO_BIN_EXE_hostile")).args(words).args(lines).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
        // A line that was left out would show nothing.
        assert!(told.contains("hostile: 4 lines, every bar met"), "{told}");
        let attempts = told.lines().find(|line| line.starts_with("attempts to reach")).unwrap_or_default();
        assert!(lines.iter().all(|line| attempts.contains(&format!("{line} "))), "{told}");
        assert!(attempts.ends_with("successful: 0"), "{told}");
    }
}
