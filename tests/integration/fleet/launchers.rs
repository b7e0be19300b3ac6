//! A real Slurm and a real sshd on this machine start the parts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use inferbench::definition::Status;
use inferbench::fleet::find_parts;
use inferbench::run_data::Manifest;

use super::{EFFORT, MODELS, only_run, parts};
use crate::support::{Run, Workplace, left_out, wait_for};

/// A command whose output is text.
fn said(program: &str, arguments: &[&str], variables: &[(&str, &Path)]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).envs(variables.iter().copied()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Slurm with two virtual nodes on this machine.
struct Slurm {
    folder: tempfile::TempDir,
}

impl Slurm {
    /// Returns `None` if Slurm or munge is not installed, or this user may not start it.
    fn start() -> Option<Self> {
        let is_installed =
            ["slurmctld", "slurmd", "sbatch", "munged"].iter().all(|it| said("which", &[it], &[]).is_some());
        if !is_installed || said("id", &["-u"], &[])? != "0" {
            return None;
        }
        let slurm = Slurm { folder: tempfile::tempdir().unwrap() };
        let script = r#"set -eu
            D=$1; P=$2; H=$(hostname -s); mkdir -p "$D/state" "$D/munge"; chmod 700 "$D/munge"
            head -c 128 /dev/urandom >"$D/munge/key"; chmod 400 "$D/munge/key"
            munged --force --key-file="$D/munge/key" --socket="$D/munge/s" --pid-file="$D/munge/pid" --log-file="$D/munge/log" --seed-file="$D/munge/seed"
            for line in ClusterName=test "SlurmctldHost=$H(127.0.0.1)" "SlurmctldPort=$P" SlurmUser=root AuthType=auth/munge \
                "AuthInfo=socket=$D/munge/s,cred_expire=5" ProctrackType=proctrack/linuxproc TaskPlugin=task/none SelectType=select/cons_tres \
                SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1 "StateSaveLocation=$D/state" "SlurmdSpoolDir=$D/spool.%n" \
                "SlurmctldPidFile=$D/slurmctld.pid" "SlurmdPidFile=$D/slurmd.%n.pid" "SlurmctldLogFile=$D/slurmctld.log" \
                "SlurmdLogFile=$D/slurmd.%n.log" SlurmdParameters=config_overrides ReturnToService=2 SlurmdTimeout=5 MessageTimeout=5 KillWait=1 \
                "NodeName=node[1-2] NodeHostname=$H NodeAddr=127.0.0.1 Port=[$((P + 1))-$((P + 2))] CPUs=2 RealMemory=2000" \
                "PartitionName=bench Nodes=node[1-2] Default=YES State=UP"; do
                echo "$line"
            done >"$D/slurm.conf"
            export SLURM_CONF="$D/slurm.conf"
            slurmctld -c; slurmd -N node1; slurmd -N node2
            until [ "$(sinfo -h -t idle -o %D)" = 2 ]; do sleep .1; done"#;
        let path = slurm.folder.path().display().to_string();
        // Three ports that nobody has, below those that the system gives away.
        let is_free = |port: u16| std::net::TcpListener::bind(("0.0.0.0", port)).is_ok();
        let first = (17817..19000_u16).step_by(10).find(|first| (*first..*first + 3).all(is_free));
        let first = first.unwrap().to_string();
        let started = Command::new("timeout").args(["150", "sh", "-c", script, "sh", &path, &first]).output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Some(slurm)
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> String {
        said(program, arguments, &[("SLURM_CONF", &self.configuration())]).unwrap_or_default()
    }

    /// Kills a node: its daemon and all processes of its job.
    fn kill(&self, node: &str) {
        let job = self.ask("squeue", &["-h", "-w", node, "-o", "%A"]);
        let script = r#"kill -KILL "$(cat "$1/slurmd.$2.pid")"
            for step in $(pgrep -f "slurmstepd: \[$3\.batch\]"); do
                jobs=$(pgrep -P "$step"); kill -KILL "$step"
                for job in $jobs; do pkill -KILL -s "$job"; kill -KILL "$job"; done
            done"#;
        let folder = self.folder.path().display().to_string();
        let _ = Command::new("sh").args(["-c", script, "sh", &folder, node, &job]).stderr(Stdio::null()).status();
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        self.ask("scancel", &["--user=root"]);
        for name in ["slurmd.node1.pid", "slurmd.node2.pid", "slurmctld.pid", "munge/pid"] {
            let pid = fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
            let _ = Command::new("kill").args(["-KILL", pid.trim()]).stderr(Stdio::null()).status();
        }
    }
}

#[test]
#[ignore = "it takes minutes; `scripts/test --all` runs it"]
fn slurm_measures_a_suite_in_four_parts_though_a_node_dies() {
    let Some(slurm) = Slurm::start() else {
        left_out(
            "Slurm and munge are not installed, or this is not root (Debian: apt-get install slurmctld slurmd slurm-client munge)",
        );
        return;
    };
    let begin = Instant::now();
    let workplace = Workplace::new(&MODELS, &["candle"], &[1, 2]);
    workplace.inferbench(&["prepare"]).finish().with_code(0);
    let fleet =
        ["fleet", "slurm", "--nodes", "4", "--phase", "forward,decode", "--iterations", "1000000", "--budget", "3"];
    let submit = |more: &[&str]| {
        let mut command = workplace.inferbench(&[&fleet[..], more].concat());
        command.env("SLURM_CONF", slurm.configuration()).finish().with_code(0)
    };
    let shown = submit(&["--dry-run"]).stdout;
    assert!(shown.starts_with("# INFERBENCH_PLAN and its files do not exist until the jobs are submitted"), "{shown}");
    assert!(shown.contains("--array=1,2,3,4") && shown.contains("--dependency=afterany:JOB"), "{shown}");
    submit(&[]);
    let logs = parts(&workplace).join("plan");
    let log = |part: usize| fs::read_to_string(logs.join(format!("part-{part}.log"))).unwrap_or_default();
    // In the middle of a part on the first node: one case is finished, and the next one is being measured.
    let all_logs = || (1..=4).map(log).collect::<Vec<_>>().join("\n--\n");
    let deadline = Instant::now() + Duration::from_secs(180);
    let part = loop {
        let task = slurm.ask("squeue", &["-h", "-w", "node1", "-o", "%K"]).parse::<usize>();
        if let Some(part) = task.ok().filter(|task| log(*task).contains("[2/2]")) {
            break part;
        }
        let queue = slurm.ask("squeue", &["-o", "%i %K %T %N %r"]);
        assert!(Instant::now() < deadline, "{queue}\n{}", all_logs());
        std::thread::sleep(Duration::from_millis(50));
    };
    slurm.kill("node1");
    let merged =
        || logs.join("merge.log").is_file() && fs::read_to_string(logs.join("merge.log")).unwrap().contains("HTML  ");
    let deadline = Instant::now() + Duration::from_secs(400);
    while !merged() {
        let queue = slurm.ask("squeue", &["-o", "%i %T %N %r"]);
        assert!(Instant::now() < deadline, "{queue}\n{}", log(part));
        std::thread::sleep(Duration::from_millis(200));
    }
    let run = only_run(&workplace);
    let records = run.records().unwrap();
    assert_eq!(records.len(), 8, "{:?}", records.iter().map(|record| &record.case_id).collect::<Vec<_>>());
    assert!(records.iter().all(|record| record.status == Status::Ok), "{records:?}");
    let Manifest { is_interrupted, parts, .. } = run.manifest().unwrap().unwrap();
    assert_eq!((parts.len(), is_interrupted), (4, false));
    assert!(log(part).contains("resuming run"), "what was measured before is kept:\n{}", log(part));
    assert!(all_logs().contains("waiting for another part"), "both nodes are this machine:\n{}", all_logs());
    eprintln!("Slurm: {:.0} s", begin.elapsed().as_secs_f64());
}

/// A server of ssh for one user, on a port of its own.
struct Sshd {
    folder: tempfile::TempDir,
    server: std::process::Child,
}

impl Sshd {
    /// Returns `None` if it is not installed.
    fn start() -> Option<Self> {
        let sshd = said("sh", &["-c", "PATH=$PATH:/usr/sbin command -v sshd"], &[])?;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        for key in ["host", "user"] {
            said("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(key)], &[])?;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let _ = fs::create_dir_all("/run/sshd");
        let server = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile none\nPermitRootLogin yes\n",
            path("host"),
            path("user.pub")
        );
        fs::write(path("sshd_config"), server).unwrap();
        let client = format!(
            "Host alpha\nHostName 127.0.0.1\nPort {port}\nIdentityFile {}\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n",
            path("user")
        );
        fs::write(path("ssh_config"), client).unwrap();
        let log = fs::File::create(path("log")).unwrap();
        let server = Command::new(sshd).args(["-D", "-e", "-f", &path("sshd_config")]).stderr(log).spawn().ok()?;
        let sshd = Sshd { folder, server };
        wait_for("sshd", || said("ssh", &["-F", &sshd.configuration(), "alpha", "true"], &[]).map(drop));
        Some(sshd)
    }

    fn configuration(&self) -> String {
        self.folder.path().join("ssh_config").display().to_string()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn a_machine_is_reached_by_ssh_and_goes_on_after_an_interruption() {
    let Some(sshd) = Sshd::start() else {
        left_out("sshd is not installed (Debian: apt-get install openssh-server)");
        return;
    };
    let workplace = Workplace::new(&MODELS[..2], &["candle"], &[1, 64]);
    // The libraries of other backends are large.
    fs::remove_file(workplace.path(".native")).unwrap();
    let there = workplace.path("there").display().to_string();
    let fleet = ["fleet", "ssh", "alpha", "--folder", &there, "--iterations", "5000", "--budget", "3"];
    let start = |more: &[&str]| {
        let mut command = workplace.inferbench(&[&fleet[..], more].concat());
        command.env("INFERBENCH_SSH", format!("ssh -F {}", sshd.configuration()));
        command
    };
    let log = workplace.path("log.txt");
    let mut running = start(&[]).start(&log);
    let second = || fs::read_to_string(&log).unwrap().contains("alpha: [2/4]").then_some(());
    wait_for("the second case over there", second);
    // Only the processes of this test: another test may run a fleet at the same time.
    let kill = r#"for process in $(pgrep -f "inferbench run --suite plan/"); do
        [ "$(readlink "/proc/$process/cwd")" = "$0" ] && kill -KILL "$process"; done"#;
    let _ = Command::new("sh").args(["-c", kill, &there]).status();
    assert_eq!(running.wait().code(), Some(3), "{}", fs::read_to_string(&log).unwrap());
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("alpha: copying") && said.contains("`--resume` goes on with it"), "{said}");

    let resumed = start(&["--resume"]).finish().with_code(0);
    assert!(!resumed.stderr.contains("copying"), "everything is there already: {}", resumed.stderr);
    // The second case may end before its process does.
    let is_kept = ["1", "2", "3"].iter().any(|kept| resumed.stderr.contains(&format!("{kept} of 4 cases finished")));
    assert!(is_kept, "{}", resumed.stderr);
    let records = only_run(&workplace).records().unwrap();
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|record| record.status == Status::Ok), "{records:?}");
}

/// A command in place of `ssh` that runs commands on this machine, as the machine `alpha`. There, `sha256sum` prints
/// German messages. If there is a file `breaks`, the connection breaks while results are fetched.
fn german_alpha(workplace: &Workplace) -> String {
    let ssh = r#"unset LC_ALL; [ "$3" = alpha ] || exit 255
        PATH="$(dirname "$0"):$PATH"; export PATH
        case $4 in *" -cf "*) [ -e "$(dirname "$0")/breaks" ] && exec sh -c "$4 | head -c 30000; exit 255";; esac
        exec sh -c "$4""#;
    let sums = r#"if [ "${LC_ALL-}" = C ]; then exec /usr/bin/sha256sum "$@"; fi
        /usr/bin/sha256sum "$@" | sed s/FAILED/FEHLSCHLAG/"#;
    fs::create_dir_all(workplace.path("alpha")).unwrap();
    for (name, script) in [("ssh", ssh), ("sha256sum", sums)] {
        let path = workplace.path(&format!("alpha/{name}"));
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    workplace.path("alpha/ssh").display().to_string()
}

#[test]
fn a_machine_that_is_not_reached_is_said_by_the_exit_code_and_the_others_are_merged() {
    let workplace = Workplace::new(&MODELS[..2], &["candle"], &[1]);
    // The libraries of other backends are large.
    fs::remove_file(workplace.path(".native")).unwrap();
    let there = workplace.path("there").display().to_string();
    let own = ["fleet", "ssh", "alpha", "beta", "--folder", &there];
    let ssh = german_alpha(&workplace);
    let start = |more: &[&str]| {
        let mut command = workplace.inferbench(&[&own[..], &EFFORT[..], more].concat());
        command.env("INFERBENCH_SSH", &ssh).finish().with_code(3)
    };
    start(&[]).saying(&["alpha: copying", "inferbench: beta: copying", "missing: part 2"]);
    assert_eq!(only_run(&workplace).records().unwrap().len(), 1);

    let folder = parts(&workplace);
    fs::remove_dir_all(folder.join("1-of-2")).unwrap();
    workplace.write("alpha/breaks", "");
    start(&["--resume"]).saying(&["inferbench: alpha: fetching", "was not fetched completely"]);
    assert!(find_parts(&[folder]).is_err(), "half of a part is left");
}

#[test]
fn a_constraint_for_a_kind_of_device_that_no_part_has_is_refused() {
    let workplace = Workplace::new(&MODELS[..1], &["candle"], &[1]);
    let own = ["fleet", "slurm", "--nodes", "1", "--by", "machine-kind", "--dry-run", "--constraint"];
    let submit = |constraint: &str| workplace.inferbench(&[&own[..], &[constraint]].concat()).finish();
    submit("gpu=a100").with_code(2).saying(&["no part is for the kind of device \"gpu\"; there are parts for cpu"]);
    assert!(submit("cpu=amd").with_code(0).stdout.contains("--constraint=amd"));
}
