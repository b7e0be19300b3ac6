//! What is left when a child or the server is killed, and when files break under the server.

use super::*;

#[test]
fn a_child_that_is_killed_fails_its_job_only() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let (id, run, worker) = start_to_the_middle(&server);
    signal("KILL", &run.to_string());
    server.wait_until(&id, "failed");
    wait_for("the end of the worker", || (!is_alive(worker)).then_some(()));
    let job = server.get(&format!("/api/v1/runs/{id}")).json();
    assert_eq!(job["job"]["message"], "the process was ended by signal 9 (SIGKILL)", "{job}");
    // The finished case is in the history.
    let records = server.get(&format!("/api/v1/records?run={id}")).json();
    let statuses: Vec<&Value> = records["items"].as_array().unwrap().iter().map(|record| &record["status"]).collect();
    assert_eq!(statuses, ["ok"], "{records}");
    let mut waiting = server.open(&head("GET", LONG, ""));
    let (_, worker) = server.measuring();
    signal("KILL", &worker.to_string());
    let message = Reply::read(&mut waiting).error(500);
    assert!(message.contains("ended by signal 9 (SIGKILL)"), "{message}");
    assert_eq!(server.get(SHORT).code, 200);
}

#[test]
fn a_server_that_is_killed_loses_no_finished_record_and_says_what_it_has_interrupted() {
    let workplace = workplace();
    let mut server = Server::start(&workplace, &[]);
    let (id, run, worker) = start_to_the_middle(&server);
    let waiting = server.submit(SHORT_JOB);
    server.kill();
    wait_for("the end of the run", || (!is_alive(run) && !is_alive(worker)).then_some(()));
    let mut server = Server::start(&workplace, &[]);
    for id in [&id, &waiting] {
        let run = server.get(&format!("/api/v1/runs/{id}")).json();
        assert_eq!(run["state"], "interrupted", "{run}");
        assert!(run["job"]["message"].as_str().unwrap().contains("the server was ended"), "{run}");
        // A client that followed the job on the killed server is told its end.
        let events = format!("/api/v1/runs/{id}/events");
        let told = String::from_utf8(server.send(&head("GET", &events, "Last-Event-ID: 50\r\n")).body).unwrap();
        assert!(told.contains("event: state") && told.contains("interrupted"), "{told}");
    }
    wait_for("the record", || {
        let records = server.get(&format!("/api/v1/records?run={id}")).json();
        (records["items"][0]["case_id"] == "digits/candle-cpu-f32/64").then_some(())
    });
    assert_eq!(server.get(SHORT).code, 200);
    assert_eq!(server.terminate(), Some(0));
    let log = fs::read_to_string(workplace.path("server.log")).unwrap();
    assert!(log.lines().any(|line| line == "ending"), "{log}");
}

#[test]
fn sigterm_finishes_the_case_and_ends() {
    let workplace = workplace();
    let mut server = Server::start(&workplace, &[]);
    let case = "/api/v1/benchmark/tenn_eeg?backend=candle&batch_size=64&iterations=200&threads=1";
    let mut first = server.open(&head("GET", case, ""));
    server.measuring();
    let mut second = server.open(&head("GET", SHORT, ""));
    wait_for("the second job", || {
        let jobs = server.get("/api/v1/runs?state=queued");
        (jobs.code == 200 && jobs.json()["items"].as_array().unwrap().len() == 1).then_some(())
    });
    assert_eq!(server.terminate(), Some(0));
    assert!(Reply::read(&mut second).error(503).contains("ending"));
    let answer = Reply::read(&mut first).json();
    assert_eq!(answer["status"], "success", "{answer}");
    assert_eq!(workplace.records().len(), 1);
    assert!(fs::read_to_string(workplace.path("server.log")).unwrap().contains("ending after the case"));
}

#[test]
fn sigterm_ends_a_job_of_short_cases_without_measuring_the_others() {
    let workplace = workplace();
    let mut server = Server::start(&workplace, &[]);
    let body = r#"{"models": ["tenn_eeg"], "backends": ["candle"], "batch_sizes": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        "iterations": 500, "threads": 1}"#;
    let id = server.submit(body);
    let current = wait_for("the second case", || {
        let job = server.get(&format!("/api/v1/runs/{id}")).json()["job"].clone();
        let batch_size = job["current"].as_str()?.rsplit('/').next()?.parse::<usize>().ok()?;
        Some(batch_size).filter(|batch_size| *batch_size > 1)
    });
    assert_eq!(server.terminate(), Some(0));
    // The next case begins, and may end before its process is told.
    let measured = workplace.records().len();
    assert!((current - 1..=current + 1).contains(&measured), "{measured} cases at case {current}");
    assert_eq!(Server::start(&workplace, &[]).state(&id), "interrupted");
}

#[test]
fn sigterm_interrupts_a_job_that_waits_for_the_lock_of_the_machine() {
    let workplace = workplace();
    let mut server = Server::start(&workplace, &[]);
    // The devices are known before the first answer.
    server.get("/api/v1/devices");
    fs::create_dir_all(workplace.path("target/inferbench")).unwrap();
    let file = fs::File::create(workplace.path("target/inferbench/lock")).unwrap();
    file.lock().unwrap();
    let mut client = server.open(&head("GET", SHORT, ""));
    let id = wait_for("the reason", || {
        // While a job has its turn, the history is read once per second.
        let runs = server.get("/api/v1/runs");
        let run = (runs.code == 200).then(|| runs.json()["items"][0].clone())?;
        let waits = run["job"]["message"] == "another measurement runs on this machine";
        waits.then(|| run["id"].as_str().unwrap().to_owned())
    });
    let begin = Instant::now();
    assert_eq!(server.terminate(), Some(0));
    // The job has not begun, so there is nothing to wait for.
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
    assert!(Reply::read(&mut client).error(503).contains("ending"));
    drop(file);
    let server = Server::start(&workplace, &[]);
    assert_eq!(server.state(&id), "interrupted");
}

#[test]
fn what_breaks_under_the_server_is_an_error_and_the_server_stays() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    assert_eq!(server.get(SHORT).code, 200);
    // A history with a run that cannot be read.
    fs::create_dir_all(workplace.path("target-reports/20250101T000000Z")).unwrap();
    workplace.write("target-reports/20250101T000000Z/results.csv", "no records");
    let records = server.get("/api/v1/records").json();
    assert_eq!(
        (records["items"].as_array().unwrap().len(), records["unreadable"].as_array().unwrap().len()),
        (1, 1),
        "{records}"
    );
    let csv = server.send(&head("GET", "/api/v1/records", "Accept: text/csv\r\n"));
    assert_eq!(csv.headers["inferbench-unreadable"], "1");
    assert_eq!(server.get("/api/v1/runs").json()["items"].as_array().unwrap().len(), 2);
    // A folder of reports that cannot be written, as on a full disk.
    fs::remove_dir_all(workplace.path("target-reports")).unwrap();
    workplace.write("target-reports", "no folder");
    let failed = server.get(&format!("{SHORT}&warmup=3"));
    assert!(failed.error(500).contains("target-reports"), "{failed:?}");
    fs::remove_file(workplace.path("target-reports")).unwrap();
    // A model that goes away.
    fs::remove_dir_all(workplace.path("models/zoo/tenn_eeg")).unwrap();
    assert!(server.get("/api/v1/benchmark/tenn_eeg").error(404).contains("no model"));
    assert_eq!(server.get(SHORT).code, 200);
}
