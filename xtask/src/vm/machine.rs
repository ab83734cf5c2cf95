//! A running guest: forwards its output, waits for its status, and makes sure that it ends.

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

/// The time limit for booting. It takes about 8 s, and was seen to take more than 120 s on a host
/// that took four fifths of the processor time.
const BOOT_LIMIT: Duration = Duration::from_secs(300);

/// The time limit for a guest to power off after it has reported its exit code.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(10);

/// The interval at which the kernel log is read while the command runs.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The time that the command has to end after its kernel has failed.
const AFTER_KERNEL_FAILURE: Duration = Duration::from_secs(60);

/// How the run of a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command ran and exited with this code.
    Exited(u8),
    /// The time limit passed, and the guest was ended.
    TimedOut,
    /// The kernel failed, and the guest was ended some time later.
    KernelFailed,
    /// The machine ended before its command: its kernel panicked, or QEMU was killed.
    Gone,
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(formatter, "the command exited with {code}"),
            Self::TimedOut => formatter.write_str("the command was ended at its time limit"),
            Self::KernelFailed => formatter.write_str("the command was ended because the kernel failed"),
            Self::Gone => formatter.write_str("the guest ended before its command"),
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
    /// Boots a guest. Its kernel log and sockets are in `folder`.
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
        // The output of QEMU itself goes to stderr, and never into the output of the command.
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

    /// Waits until the guest is up. Returns the time since it was started.
    pub(crate) fn wait_until_ready(&mut self) -> Result<Duration> {
        let line = match self.status.recv_timeout(BOOT_LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                bail!("the guest did not boot within {} s", BOOT_LIMIT.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait_for_qemu(POWER_OFF_LIMIT)?;
                bail!("the guest ended while it booted ({})", shown(status))
            }
        };
        match line.split_once(' ') {
            _ if line == "ready" => Ok(self.started.elapsed()),
            Some(("topology", words)) => bail!("the guest could not set up its network: {words}"),
            _ => bail!("the guest could not be set up (its status: `{line}`)"),
        }
    }

    /// Waits for the end of the command, at most for `limit`. If the kernel has failed, the wait is
    /// shorter: a test that called it may never return.
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
        let code = code.with_context(|| format!("the guest reported `{line}` instead of an exit code"))?;
        self.wait_for_qemu(POWER_OFF_LIMIT)?;
        self.end();
        Ok(Ending::Exited(code))
    }

    /// Returns the path of the guest's kernel log, which outlives the guest.
    pub(crate) fn kernel_log(&self) -> PathBuf {
        self.folder.join("kernel.log")
    }

    /// Returns the kernel log so far.
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

    /// Ends QEMU if it is still running, and forwards the rest of its output.
    fn end(&mut self) {
        // Both fail only if QEMU has already ended, which is the goal.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        for stream in self.streams.drain(..) {
            let _ = stream.join();
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // If QEMU never connected, the threads wait for it until this process ends.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn shown(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "QEMU still runs".to_owned(), |status| format!("QEMU: {status}"))
}

/// Copies the data of a port to one of this process's streams until the guest has ended.
fn carry(listener: UnixListener, mut to: impl Write + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let Ok((mut from, _)) = listener.accept() else { return };
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            // The reader of this process may have ended (`| head`): the guest continues, and its
            // output is dropped.
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
