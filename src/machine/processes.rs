//! Processes: how they ended, how they end with their parent, and how they are suspended and resumed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// Whether [`suspend`] and [`resume`] work here.
pub const CAN_SUSPEND: bool = cfg!(unix);

/// The running executable, even if a build has replaced its file meanwhile.
pub fn own_executable() -> Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() {
        return Ok(running);
    }
    std::env::current_exe().context("the path of this executable")
}

/// Lets the system kill this process when its parent ends, however that happens: a suspended process cannot check this
/// itself.
#[cfg(target_os = "linux")]
pub fn end_with_parent() {
    // This fails only for an invalid signal.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
}

/// Where the system cannot do it, a thread checks whether the parent still runs. Windows has neither: the process goes
/// on until its work is done.
#[cfg(not(target_os = "linux"))]
pub fn end_with_parent() {
    #[cfg(unix)]
    std::thread::spawn(|| {
        let parent = std::os::unix::process::parent_id();
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        std::process::exit(1);
    });
}

/// Lets the system send SIGTERM to this process when its parent ends. Only Linux can do it.
pub fn interrupt_with_parent() {
    #[cfg(target_os = "linux")]
    // This fails only for an invalid signal.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
}

/// Makes a process that will be started the leader of a process group, and lets the system kill it when this process
/// ends.
pub fn tie_to_parent(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(target_os = "linux")]
    {
        let parent = nix::unistd::getpid();
        let tie = move || {
            end_with_parent();
            // The parent may have ended before.
            if nix::unistd::getppid() == parent { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
        };
        // SAFETY: between fork and exec it makes two system calls, and takes neither memory nor a lock.
        unsafe { std::os::unix::process::CommandExt::pre_exec(command, tie) };
    }
}

/// Ends the process group that a child leads, and waits for the child.
pub fn end_group(child: &mut Child) {
    kill_group(child.id());
    let _ = child.kill();
    let _ = child.wait();
}

/// Ends the rest of a process group as soon as its leader, a child of this process, has ended. Exit code 0 is an
/// exception: a launcher may have handed over to another process. [`Child::wait`] still gets the leader's status. Only
/// Linux can do this.
pub fn end_group_after(leader: u32) {
    #[cfg(target_os = "linux")]
    std::thread::spawn(move || {
        use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
        let leader_id = Id::Pid(nix::unistd::Pid::from_raw(leader.cast_signed()));
        let ended = waitid(leader_id, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        if ended.is_ok_and(|status| !matches!(status, WaitStatus::Exited(_, 0))) {
            kill_group(leader);
        }
    });
    #[cfg(not(target_os = "linux"))]
    let _ = leader;
}

/// The variable that marks the processes that a case's process starts: all of them inherit it, unless they drop it.
pub const STARTED_FOR: &str = "INFERBENCH_STARTED_FOR";

/// Ends the processes whose [`STARTED_FOR`] has this value, in any process group. Only Linux shows other processes'
/// variables.
pub fn end_started_for(value: &OsStr) {
    let wanted = [STARTED_FOR.as_bytes(), b"=", value.as_encoded_bytes()].concat();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let variables = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let id = process.file_name().to_str().and_then(|id| id.parse().ok());
        if let Some(id) = id.filter(|_| variables.split(|byte| *byte == 0).any(|variable| variable == wanted)) {
            end(id);
        }
    }
}

/// The external workers that compute for this process.
static ADOPTED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Counts what a process and its descendants use as used by this process.
pub fn adopt(id: u32) {
    ADOPTED.lock().unwrap_or_else(PoisonError::into_inner).push(id);
}

/// Ends what [`adopt`] began.
pub fn release(id: u32) {
    ADOPTED.lock().unwrap_or_else(PoisonError::into_inner).retain(|adopted| *adopted != id);
}

/// The folders in `/proc` of this process, and of those that compute for it and still run.
pub(super) fn own_folders() -> Vec<PathBuf> {
    own_processes().into_iter().map(|id| PathBuf::from(format!("/proc/{id}"))).collect()
}

/// The sum of a figure over this process and those that compute for it. Returns `None` if the figure of this process is
/// unknown.
pub(super) fn own_sum(figure: impl Fn(PathBuf) -> Option<u64>) -> Option<u64> {
    let mut figures = own_folders().into_iter().map(figure);
    Some(figures.next().flatten()? + figures.flatten().sum::<u64>())
}

/// This process, and those that compute for it and still run.
pub fn own_processes() -> Vec<u32> {
    let mut found = vec![std::process::id()];
    let mut open = ADOPTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    while let Some(id) = open.pop() {
        for thread in std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        found.push(id);
    }
    found
}

use self::signals::end;
pub use self::signals::{
    ending_signal, is_ended_by_ctrl_c, kill_group, resume, resume_workers, suspend, suspend_workers, terminate,
};

#[cfg(unix)]
mod signals {
    use std::os::unix::process::ExitStatusExt;

    use anyhow::bail;
    use nix::sys::signal::{Signal, kill, killpg};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::Pid;

    use super::*;

    /// The number and name of the signal that has ended a process, if one has.
    pub fn ending_signal(status: ExitStatus) -> Option<(i32, &'static str)> {
        let number = status.signal()?;
        Some((number, Signal::try_from(number).map_or("no name", Signal::as_str)))
    }

    /// Whether Ctrl-C has ended a process.
    pub fn is_ended_by_ctrl_c(status: ExitStatus) -> bool {
        status.signal() == Some(Signal::SIGINT as i32)
    }

    /// Suspends a child, and returns when all its threads have stopped. If the child has ended instead, returns its
    /// status.
    ///
    /// # Errors
    /// The child has been waited for, or the system cannot suspend processes.
    pub fn suspend(child: &Child) -> Result<Option<ExitStatus>> {
        kill(pid(child), Signal::SIGSTOP)?;
        match waitpid(pid(child), Some(WaitPidFlag::WUNTRACED))? {
            WaitStatus::Stopped(..) => Ok(None),
            WaitStatus::Signaled(_, signal, _) => Ok(Some(ExitStatus::from_raw(signal as i32))),
            WaitStatus::Exited(_, code) => Ok(Some(ExitStatus::from_raw(code << 8))),
            status => bail!("the process did not stop: {status:?}"),
        }
    }

    /// Resumes a suspended child.
    pub fn resume(child: &Child) -> Result<()> {
        Ok(kill(pid(child), Signal::SIGCONT)?)
    }

    /// Suspends the process groups of the external workers: threads that spin while they wait for work take processors.
    pub fn suspend_workers() {
        signal_workers(Signal::SIGSTOP);
    }

    /// Resumes the process groups of the external workers.
    pub fn resume_workers() {
        signal_workers(Signal::SIGCONT);
    }

    fn signal_workers(signal: Signal) {
        for id in ADOPTED.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // A worker that has ended needs no signal.
            let _ = killpg(Pid::from_raw(id.cast_signed()), signal);
        }
    }

    /// Asks a process to end, if it still runs.
    pub fn terminate(process: u32) {
        let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGTERM);
    }

    /// Ends a process, if it is there.
    pub(super) fn end(process: i32) {
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }

    /// Ends the processes of a group, if there are any.
    pub fn kill_group(leader: u32) {
        let _ = killpg(Pid::from_raw(leader.cast_signed()), Signal::SIGKILL);
    }

    fn pid(child: &Child) -> Pid {
        Pid::from_raw(child.id().cast_signed())
    }
}

/// The same functions for Windows, which has no signals.
#[cfg(not(unix))]
mod signals {
    use super::*;

    pub fn ending_signal(_: ExitStatus) -> Option<(i32, &'static str)> {
        None
    }

    pub fn is_ended_by_ctrl_c(status: ExitStatus) -> bool {
        const CONTROL_C_EXIT: i32 = 0xC000_013A_u32.cast_signed();
        status.code() == Some(CONTROL_C_EXIT)
    }

    pub fn suspend(_: &Child) -> Result<Option<ExitStatus>> {
        anyhow::bail!("this system cannot stop a process and let it go on")
    }

    pub fn resume(child: &Child) -> Result<()> {
        suspend(child).map(drop)
    }

    pub fn suspend_workers() {}

    pub fn resume_workers() {}

    /// Windows cannot ask a process to end.
    pub fn terminate(_: u32) {}

    pub(super) fn end(_: i32) {}

    /// Windows has no process groups.
    pub fn kill_group(_: u32) {}
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_is_stopped_and_goes_on_and_its_end_is_told() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(suspend(&child).unwrap(), None);
        resume(&child).unwrap();
        child.kill().unwrap();
        let ended = suspend(&child).unwrap().unwrap();
        // `suspend` has waited for it.
        assert!(child.wait().is_err());
        assert_eq!((ending_signal(ended), is_ended_by_ctrl_c(ended)), (Some((9, "SIGKILL")), false));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_group_ends_with_its_leader_whose_status_stays() {
        use std::io::Read;
        let mut command = Command::new("sh");
        tie_to_parent(command.args(["-c", "sleep 60 & exit 7"]).stdout(std::process::Stdio::piped()));
        let mut leader = command.spawn().unwrap();
        end_group_after(leader.id());
        let start = std::time::Instant::now();
        // Ends when no process of the group holds it open.
        leader.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
        assert!(start.elapsed() < std::time::Duration::from_secs(50));
        assert_eq!(leader.wait().unwrap().code(), Some(7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn external_workers_are_stopped_with_their_groups_and_go_on() {
        let mut command = Command::new("sh");
        tie_to_parent(command.args(["-c", "sleep 60 & wait"]));
        let mut worker = command.spawn().unwrap();
        adopt(worker.id());
        let wait_until_stopped = |is_stopped: bool| {
            let state = |id: u32| {
                let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
                stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('T')
            };
            let all = || own_processes().into_iter().filter(|id| *id != std::process::id()).collect::<Vec<u32>>();
            while all().len() < 2 || all().into_iter().any(|id| state(id) != is_stopped) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        wait_until_stopped(false);
        suspend_workers();
        wait_until_stopped(true);
        resume_workers();
        wait_until_stopped(false);
        release(worker.id());
        end_group(&mut worker);
    }
}
