//! A suite over several machines: parts that are merged, and the same by a real Slurm and a real sshd on this machine.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use inferbench::definition::Status;
use inferbench::fleet::find_parts;
use inferbench::history::{History, Run as HistoryRun, read_records, write_records};
use inferbench::run_data::Manifest;
use serde_json::{Value, json};

use crate::support::{Run, Workplace, left_out, wait_for};

/// Four models, so that there can be four parts.
const MODELS: [&str; 4] = ["digits", "tenn_eeg", "bert-small", "gpt2-tiny"];
const EFFORT: [&str; 4] = ["--iterations", "20", "--budget", "0.2"];

fn divide(workplace: &Workplace, count: &str, more: &[&str]) {
    let own = ["shard", "--count", count, "--output", "parts"];
    workplace.inferbench(&[&own[..], &EFFORT[..], more].concat()).finish().with_code(0);
}

fn measure(workplace: &Workplace, part: &str) {
    workplace.inferbench(&["run", "--suite", &format!("parts/{part}.toml"), "--noplot"]).finish().with_code(0);
}

/// The folder of all parts that were measured.
fn parts(workplace: &Workplace) -> PathBuf {
    let mut folders = fs::read_dir(workplace.path("target-reports/parts")).unwrap();
    folders.next().unwrap().unwrap().path()
}

fn only_run(workplace: &Workplace) -> HistoryRun {
    let history = History::open(&[workplace.path("target-reports")]).unwrap();
    assert_eq!(history.runs().len(), 1);
    history.latest().unwrap().clone()
}

#[test]
fn parts_are_merged_into_one_run_and_what_is_missing_is_named() {
    let workplace = Workplace::new(&MODELS[..2], &["candle"], &[1, 2]);
    divide(&workplace, "2", &["--anchor", "digits/candle-cpu-f32/2"]);
    measure(&workplace, "1-of-2");
    let folder = parts(&workplace).display().to_string();
    let merge = |more: &[&str]| workplace.inferbench(&[&["merge", &folder], more].concat()).finish();
    merge(&[]).with_code(3).saying(&["missing: part 2", "`--partial`"]);
    assert!(
        fs::read_dir(workplace.path("target-reports"))
            .unwrap()
            .flatten()
            .all(|it| !it.path().join("results.csv").exists())
    );
    merge(&["--partial"]).with_code(0);
    assert!(only_run(&workplace).manifest().unwrap().unwrap().is_interrupted);

    measure(&workplace, "2-of-2");
    merge(&[]).with_code(0);
    let run = only_run(&workplace);
    let records = run.records().unwrap();
    let mut ids: Vec<&str> = records.iter().map(|record| record.case_id.as_str()).collect();
    ids.sort_unstable();
    let all = [
        "digits/candle-cpu-f32/1",
        "digits/candle-cpu-f32/2",
        "tenn_eeg/candle-cpu-f32/1",
        "tenn_eeg/candle-cpu-f32/2",
    ];
    assert_eq!(ids, all, "both parts have measured the anchor on this machine");
    assert!(records.iter().all(|record| record.status == Status::Ok && record.run_id == run.name()));
    assert_eq!(run.distributions().unwrap().cases.len(), 4);
    let facts = run.facts().unwrap();
    let calls: usize = records.iter().filter_map(|record| record.iterations).sum();
    assert_eq!((facts.cases_ok, facts.calls), (4, calls));
    let manifest = run.manifest().unwrap().unwrap();
    let numbers: Vec<usize> = manifest.parts.iter().map(|part| part.index).collect();
    assert_eq!((numbers, manifest.is_interrupted, manifest.nodes().len()), (vec![1, 2], false, 1));
    assert!(manifest.parts.iter().all(|part| part.calibrations.iter().all(|it| it.after.is_some())));
}

#[test]
fn what_several_machines_have_measured_is_kept_by_machine() {
    let workplace = Workplace::new(&MODELS[..3], &["candle"], &[1]);
    let anchor = "digits/candle-cpu-f32/1";
    divide(&workplace, "2", &["--anchor", anchor]);
    for (part, host_id) in [("1-of-2", "aaaa1111"), ("2-of-2", "bbbb2222")] {
        let suite = format!("parts/{part}.toml");
        let mut command = workplace.inferbench(&["run", "--suite", &suite, "--noplot"]);
        command.env("INFERBENCH_HOST_ID", host_id).finish().with_code(0);
    }
    let folder = parts(&workplace).display().to_string();
    workplace.inferbench(&["merge", &folder]).finish().with_code(0);
    let run = only_run(&workplace);
    let records = run.records().unwrap();
    let anchors: Vec<_> = records.iter().filter(|record| record.case_id == anchor).collect();
    assert_eq!(anchors.len(), 2, "each machine has its row");
    let kept = run.distributions().unwrap();
    let medians: Vec<Option<f64>> = anchors
        .iter()
        .map(|record| {
            let quantiles = &kept.of(&record.host_id, anchor).unwrap().quantiles_ms;
            quantiles.iter().find(|(fraction, _)| *fraction == 0.5).map(|(_, ms)| *ms)
        })
        .collect();
    assert_eq!(medians, anchors.iter().map(|record| record.latency_p50_ms).collect::<Vec<_>>());
    #[cfg(feature = "duckdb")]
    {
        let sql = format!(
            "SELECT host_id, count(*) FROM raw_benchmark_data WHERE \"case\" = '{anchor}' GROUP BY ALL ORDER BY ALL"
        );
        let found = workplace.inferbench(&["store", "query", &sql, "--format", "csv"]).finish().with_code(0).stdout;
        let mut lines: Vec<String> =
            anchors.iter().map(|record| format!("{},{}", record.host_id, record.iterations.unwrap())).collect();
        lines.sort_unstable();
        assert_eq!(found.lines().skip(1).collect::<Vec<_>>(), lines);
    }
}

#[test]
fn a_merge_takes_the_place_of_earlier_ones_of_fewer_parts() {
    let workplace = Workplace::new(&MODELS[..3], &["candle"], &[1]);
    divide(&workplace, "3", &[]);
    let measure = |part: &str, host_id: &str| {
        let suite = format!("parts/{part}.toml");
        let mut command = workplace.inferbench(&["run", "--suite", &suite, "--noplot"]);
        command.env("INFERBENCH_HOST_ID", host_id).finish().with_code(0);
    };
    measure("2-of-3", "bbbb2222");
    measure("3-of-3", "cccc3333");
    let folder = parts(&workplace);
    let merge = |folder: &Path, cases: usize| -> HistoryRun {
        workplace.inferbench(&["merge", &folder.display().to_string(), "--partial"]).finish().with_code(0);
        let run = only_run(&workplace);
        assert_eq!(run.records().unwrap().len(), cases);
        run
    };
    // The second one begins with the time of a part that was not there, and the third with the rows of another machine.
    merge(&folder.join("3-of-3"), 1);
    merge(&folder, 2);
    measure("1-of-3", "aaaa1111");
    let whole = merge(&folder, 3);
    assert!(whole.records().unwrap().iter().all(|record| record.run_id == whole.name()), "{}", whole.name());
    // Fewer parts take the place of nothing, whether or not the id would be the same.
    for part in ["2-of-3", "1-of-3"] {
        let part = folder.join(part).display().to_string();
        let refused = workplace.inferbench(&["merge", &part, "--partial"]).finish().with_code(2);
        refused.saying(&[whole.name(), "was merged of more parts than these"]);
    }
    assert_eq!(only_run(&workplace).records().unwrap().len(), 3);
}

/// Makes the machine of a part's run as fast as these figures say.
fn put_speed(run: &Path, anchor: &str, gflops: f64, anchor_ms: f64) {
    let path = run.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for calibration in manifest["calibrations"].as_array_mut().unwrap() {
        for look in ["before", "after"] {
            calibration[look]["product_gflops_per_second"] = json!([gflops]);
            calibration[look]["copy_gb_per_second"] = json!([20.0]);
        }
    }
    fs::write(&path, manifest.to_string()).unwrap();
    let path = run.join("results.csv");
    let mut records = read_records(fs::File::open(&path).unwrap()).unwrap();
    records.iter_mut().filter(|record| record.case_id == anchor).for_each(|it| it.latency_p50_ms = Some(anchor_ms));
    write_records(&records, fs::File::create(&path).unwrap()).unwrap();
}

#[test]
fn the_backends_of_one_model_on_equal_machines_are_ranked_together_and_on_others_apart() {
    let workplace = Workplace::new(&MODELS[..1], &["candle", "null"], &[1, 2]);
    let anchor = "digits/candle-cpu-f32/2";
    let own = ["shard", "--count", "2", "--anchor", anchor];
    workplace.inferbench(&own).finish().with_code(2).saying(&["2 parts of 1 model", "`--equal-machines`"]);
    divide(&workplace, "2", &["--anchor", anchor, "--equal-machines"]);
    for (part, host_id) in [("1-of-2", "aaaa1111"), ("2-of-2", "bbbb2222")] {
        let suite = format!("parts/{part}.toml");
        let mut command = workplace.inferbench(&["run", "--suite", &suite, "--noplot"]);
        command.env("INFERBENCH_HOST_ID", host_id).finish().with_code(0);
    }
    let folder = parts(&workplace);
    let runs = find_parts(std::slice::from_ref(&folder)).unwrap();
    let hosts_of = |backend: &str| {
        let records = runs.iter().flat_map(|run| run.records().unwrap());
        let own = records.filter(|record| record.backend == backend && record.case_id != anchor);
        own.map(|record| record.host_id).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((hosts_of("candle").len(), hosts_of("null").len()), (1, 1));
    assert_ne!(hosts_of("candle"), hosts_of("null"));
    let merged = |ms: f64| {
        put_speed(runs[0].folder(), anchor, 400.0, 2.0);
        put_speed(runs[1].folder(), anchor, 396.0, ms);
        let finished = workplace.inferbench(&["merge", &folder.display().to_string()]).finish().with_code(0);
        (finished, only_run(&workplace).manifest().unwrap().unwrap().equal_machines)
    };
    let (equal, known) = merged(2.04);
    assert!(known.is_some_and(|known| (known - 1.02).abs() < 1e-9), "{known:?}");
    assert!(
        equal.stdout.contains("ranked together: by calibration and anchor, these differ by up to 2 %"),
        "{}",
        equal.stdout
    );
    let (apart, unknown) = merged(3.0);
    let apart = apart.saying(&["digits: measured on several machines, which are ranked apart"]);
    assert!(unknown.is_none() && !apart.stdout.contains("ranked together"), "{}", apart.stdout);
}

#[test]
fn what_a_killed_machine_has_measured_of_a_part_is_kept_if_another_one_goes_on() {
    let workplace = Workplace::new(&MODELS[..1], &["candle"], &[1, 2]);
    let anchor = "digits/candle-cpu-f32/2";
    divide(&workplace, "1", &["--anchor", anchor]);
    let measure = |host_id: &str| {
        let mut command = workplace.inferbench(&["run", "--suite", "parts/1-of-1.toml", "--resume", "--noplot"]);
        command.env("INFERBENCH_HOST_ID", host_id).finish().with_code(0);
    };
    measure("aaaa1111");
    // As if it had been killed before it converted what it has measured.
    fs::remove_dir_all(workplace.path("target-reports")).unwrap();
    measure("bbbb2222");
    workplace.inferbench(&["merge", &parts(&workplace).display().to_string()]).finish().with_code(0);
    let records = only_run(&workplace).records().unwrap();
    assert!(records.iter().all(|record| record.status == Status::Ok), "{records:?}");
    let mut cases: Vec<&str> = records.iter().map(|it| it.case_id.as_str()).collect();
    cases.sort_unstable();
    assert_eq!(cases, ["digits/candle-cpu-f32/1", anchor, anchor]);
    let hosts = records.iter().filter(|it| it.case_id == anchor).map(|it| it.host_id.as_str());
    assert_eq!(hosts.collect::<BTreeSet<&str>>().len(), 2, "{records:?}");
}

#[test]
fn a_part_in_a_new_order_is_the_same_part() {
    let workplace = Workplace::new(&MODELS[..1], &["candle"], &[1]);
    let arguments = ["run", "--shard", "1/1", "--shuffle", "--noplot", "--resume"];
    let run = || workplace.inferbench(&[&arguments[..], &EFFORT[..]].concat()).finish().with_code(0);
    run();
    run().saying(&["this part is finished"]);
}

#[test]
fn a_part_of_other_files_is_refused_by_the_name_of_the_model() {
    let workplace = Workplace::new(&MODELS[..2], &["candle"], &[1]);
    divide(&workplace, "2", &[]);
    measure(&workplace, "1-of-2");
    let weights = workplace.path("models/zoo/tenn_eeg/weights.toml");
    fs::write(&weights, fs::read_to_string(&weights).unwrap() + "\n# changed\n").unwrap();
    let refused = workplace.inferbench(&["run", "--suite", "parts/2-of-2.toml", "--noplot"]).finish().with_code(2);
    refused.saying(&["part 2 of 2 was planned for something else", "the files of tenn_eeg original are others"]);
    // Each machine divides the suite for itself.
    let whole = ["run", "--shard", "2/2", "--noplot"];
    workplace.inferbench(&[&whole[..], &EFFORT[..]].concat()).finish().with_code(0);
    let folder = workplace.path("target-reports/parts").display().to_string();
    let refused = workplace.inferbench(&["merge", &folder]).finish().with_code(2);
    refused.saying(&["is not of the same measurement", "the files of tenn_eeg original are others"]);
    workplace.inferbench(&["run", "--shard", "3/2"]).finish().with_code(2).saying(&["is no part"]);
    workplace.inferbench(&["shard", "--count", "3"]).finish().with_code(2).saying(&["3 parts of 2 models"]);
}

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

    /// Ends a node at once: its daemon, and everything of the job that runs there.
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
    // Those of this test alone: another test may have a fleet at the same time.
    let kill = r#"for process in $(pgrep -f "inferbench run --suite plan/"); do
        [ "$(readlink "/proc/$process/cwd")" = "$0" ] && kill -KILL "$process"; done"#;
    let _ = Command::new("sh").args(["-c", kill, &there]).status();
    assert_eq!(running.wait().code(), Some(2), "{}", fs::read_to_string(&log).unwrap());
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("alpha: copying") && said.contains("`--resume` goes on with it"), "{said}");

    let resumed = start(&["--resume"]).finish().with_code(0);
    assert!(!resumed.stderr.contains("copying"), "everything is there already: {}", resumed.stderr);
    // The second case may end before its process does.
    let is_kept =
        ["1", "2", "3"].iter().any(|kept| resumed.stderr.contains(&format!("{kept} of 4 cases are finished")));
    assert!(is_kept, "{}", resumed.stderr);
    let records = only_run(&workplace).records().unwrap();
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|record| record.status == Status::Ok), "{records:?}");
}

/// A command in place of `ssh` that runs on this machine what it is told to, as the machine `alpha`. There, `sha256sum` speaks German, as
/// it does where the user has chosen that language.
fn german_alpha(workplace: &Workplace) -> String {
    let ssh = r#"unset LC_ALL; [ "$3" = alpha ] || exit 255
        PATH="$(dirname "$0"):$PATH"; export PATH; exec sh -c "$4""#;
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
    let mut command = workplace.inferbench(&[&own[..], &EFFORT[..]].concat());
    let finished = command.env("INFERBENCH_SSH", german_alpha(&workplace)).finish().with_code(3);
    finished.saying(&["alpha: copying", "inferbench: beta: copying", "missing: part 2"]);
    assert_eq!(only_run(&workplace).records().unwrap().len(), 1);
}
