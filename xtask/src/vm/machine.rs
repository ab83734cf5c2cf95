//! A running guest: its streams carried to ours, its word awaited, its end certain.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;
use super::qemu::{PORTS, Setup};
use super::spec::{GuestSpec, Place, Task};
use super::{control, fault, initramfs};

/// A guest that has not come up by then is not going to: booting takes some 8 s, and was seen to take more than 120 s where the host took four fifths of the
/// processors away.
const BOOT_LIMIT: Duration = Duration::from_secs(300);

/// How long a guest may take to switch itself off after it told its exit code.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(10);

/// How often the kernel's log is read while the command runs.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The time that the command has to end after its kernel has failed.
const AFTER_KERNEL_FAILURE: Duration = Duration::from_secs(60);

/// How a guest's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command ran and ended with this code.
    Exited(u8),
    /// The time limit came first, and the guest was ended.
    TimedOut,
    /// The kernel failed, and the guest was ended a while later.
    KernelFailed,
    /// The machine ended before its command: its kernel panicked, or somebody ended QEMU.
    Gone,
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(formatter, "the command ended with {code}"),
            Self::TimedOut => formatter.write_str("the command was ended at its time limit"),
            Self::KernelFailed => formatter.write_str("the command was ended because the kernel has failed"),
            Self::Gone => formatter.write_str("the guest was gone before its command ended"),
        }
    }
}

/// A machine that was started. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Machine {
    qemu: Child,
    folder: PathBuf,
    started: Instant,
    status: Receiver<String>,
    streams: Vec<JoinHandle<()>>,
}

impl Machine {
    /// Boots a guest; `folder` takes its kernel log and sockets.
    pub(crate) fn start(
        spec: &GuestSpec,
        kernel: &Kernel,
        root: &Path,
        place: Place,
        task: &Task,
        folder: PathBuf,
    ) -> Result<Self> {
        let shares = control::write(&folder.join("control"), kernel, place, task)?;
        initramfs::write(kernel, root, &folder.join("initramfs"))?;
        let listeners = PORTS.map(|port| {
            let path = folder.join(port);
            UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))
        });
        let is_interactive = matches!(task, Task::Shell { .. });
        let setup = Setup { spec, kernel, place, root, folder: &folder, shares: &shares, is_interactive };
        let mut command = setup.command();
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
        // What QEMU itself says belongs with the errors, never with the command's output.
        if !is_interactive {
            command.stdout(io::stderr());
        }
        let qemu = command.spawn().context("cannot start QEMU")?;
        let (tell, status) = channel();
        let [stdout, stderr, told] = listeners;
        let streams =
            vec![carry(stdout?, io::stdout()), carry(stderr?, io::stderr()), listen_for_status(told?, tell)];
        Ok(Self { qemu, folder, started: Instant::now(), status, streams })
    }

    /// Waits until the guest is up; how long that took since it was started.
    pub(crate) fn wait_until_ready(&mut self) -> Result<Duration> {
        let line = match self.status.recv_timeout(BOOT_LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guest did not come up in {} s", BOOT_LIMIT.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait_for_qemu(POWER_OFF_LIMIT)?;
                bail!("the guest ended while it booted ({})", shown(status))
            }
        };
        match line.split_once(' ') {
            _ if line == "ready" => Ok(self.started.elapsed()),
            Some(("topology", words)) => bail!("the guest could not make its network: {words}"),
            _ => bail!("the guest could not be set up (it says `{line}`)"),
        }
    }

    /// Waits for the command's end, at most for `limit`. A kernel that has failed is not waited for: a test that called it may never
    /// come back.
    pub(crate) fn wait_for_exit(&mut self, limit: Duration) -> Result<Ending> {
        let deadline = Instant::now() + limit;
        let mut failed_at: Option<Instant> = None;
        let line = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.status.recv_timeout(left.min(LOOK_EVERY)) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    self.end();
                    return Ok(Ending::TimedOut);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.wait_for_qemu(POWER_OFF_LIMIT)?;
                    return Ok(Ending::Gone);
                }
            }
            if failed_at.is_none() && fault::is_fatal(&self.read_kernel_log()) {
                failed_at = Some(Instant::now());
            }
            if failed_at.is_some_and(|at| at.elapsed() > AFTER_KERNEL_FAILURE) {
                self.end();
                return Ok(Ending::KernelFailed);
            }
        };
        let code = line.strip_prefix("exit ").and_then(|code| code.parse().ok());
        let code = code.with_context(|| format!("the guest says `{line}` where an exit code was due"))?;
        self.wait_for_qemu(POWER_OFF_LIMIT)?;
        self.end();
        Ok(Ending::Exited(code))
    }

    /// Where the guest's kernel log is, which outlives the guest.
    pub(crate) fn kernel_log(&self) -> PathBuf {
        self.folder.join("kernel.log")
    }

    /// What the guest's kernel has told so far.
    pub(crate) fn read_kernel_log(&self) -> String {
        let log = std::fs::read(self.kernel_log()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn wait_for_qemu(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.qemu.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(None)
    }

    /// Ends QEMU if it still runs, and lets the last of its output through.
    fn end(&mut self) {
        // Both fail only when QEMU is gone already, which is what is wanted.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        for stream in self.streams.drain(..) {
            let _ = stream.join();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A QEMU that never connected would leave the threads waiting for it: they are left to the process's end.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn shown(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "QEMU still runs".to_owned(), |status| format!("QEMU: {status}"))
}

/// Copies what comes from a port to one of our streams until the guest is gone.
fn carry(listener: UnixListener, mut to: impl Write + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let Ok((mut from, _)) = listener.accept() else { return };
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            // Our reader may have gone (`| head`): the guest goes on, its words are dropped.
            let _ = to.write_all(&buffer[..length]).and_then(|()| to.flush());
        }
    })
}

fn listen_for_status(listener: UnixListener, tell: Sender<String>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let Ok((stream, _)) = listener.accept() else { return };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    })
}
