//! Jobs: their events, their records, and their end.

use super::*;

#[test]
fn a_job_tells_its_cases_as_they_come_and_leaves_records_in_three_forms() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let body =
        r#"{"models": ["digits"], "backends": ["candle"], "batch_sizes": [1, 2], "iterations": 20, "threads": 1}"#;
    let reply = server.post("/api/v1/runs", body);
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    assert_eq!((reply.code, reply.headers["location"].as_str()), (202, &*format!("/api/v1/runs/{id}")));
    let events = server.get(&format!("/api/v1/runs/{id}/events"));
    assert_eq!(events.headers["content-type"], "text/event-stream");
    let text = String::from_utf8(events.body).unwrap();
    let data = |part: &str| {
        part.lines()
            .find_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str::<Value>(data).unwrap())
    };
    let of_kind = |kind: &str| -> Vec<Value> {
        let line = format!("event: {kind}");
        text.split("\n\n").filter(|part| part.lines().any(|it| it == line)).filter_map(data).collect()
    };
    assert_eq!(of_kind("planned")[0]["cases"], json!(["digits/candle-cpu-f32/1", "digits/candle-cpu-f32/2"]), "{text}");
    let finished: Vec<Value> = of_kind("case").into_iter().filter(|case| case["state"] == "finished").collect();
    assert_eq!(finished.len(), 2, "{text}");
    assert!(
        finished.iter().all(|case| case["status"] == "ok" && case["latency_p50_ms"].as_f64().unwrap() > 0.0),
        "{text}"
    );
    let states: Vec<Value> = of_kind("state").iter().map(|status| status["state"].clone()).collect();
    assert_eq!((states.first(), states.last()), (Some(&json!("queued")), Some(&json!("done"))), "{text}");
    // A client that reconnects continues after the last event that it has seen.
    let last = text.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let rest = server.send(&head(
        "GET",
        &format!("/api/v1/runs/{id}/events"),
        &format!("Last-Event-ID: {}\r\n", last.parse::<usize>().unwrap() - 1),
    ));
    assert_eq!(String::from_utf8(rest.body).unwrap().matches("event: ").count(), 1);

    let run = server.get(&format!("/api/v1/runs/{id}")).json();
    assert_eq!((&run["state"], &run["facts"]["cases_ok"]), (&json!("done"), &json!(2)), "{run}");
    assert_eq!(run["job"]["finished_cases"], 2, "{run}");
    let records = format!("/api/v1/records?run={id}&batch_size=2&model=digits&status=ok");
    let listed = server.get(&records).json();
    assert_eq!(
        (listed["items"].as_array().unwrap().len(), &listed["items"][0]["batch_size"]),
        (1, &json!(2)),
        "{listed}"
    );
    let first = server.get(&format!("/api/v1/records?run={id}&limit=1")).json();
    assert_eq!((&first["next_offset"], first["items"].as_array().unwrap().len()), (&json!(1), 1));
    let csv = server.send(&head("GET", &records, "Accept: text/csv\r\n"));
    let csv = inferbench::history::read_records(csv.body.as_slice()).unwrap();
    assert_eq!((csv.len(), csv[0].batch_size), (1, 2));
    let parquet = server.send(&head("GET", &records, "Accept: application/vnd.apache.parquet\r\n"));
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));
    assert!(server.send(&head("GET", &records, "Accept: image/png\r\n")).error(406).contains("text/csv"));
    let report = server.get(&format!("/api/v1/runs/{id}/report"));
    assert!(String::from_utf8(report.body).unwrap().contains("id=\"payload\""));

    let second = server.submit(body);
    server.wait_until(&second, "done");
    let comparison = server.get(&format!("/api/v1/compare?base={id}&candidate={second}"));
    assert_eq!(comparison.code, 200, "{comparison:?}");
    assert_eq!(comparison.json()["cases"].as_array().unwrap().len(), 2, "{comparison:?}");
    let runs = server.get("/api/v1/runs").json();
    let ids: Vec<&str> = runs["items"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [second.as_str(), id.as_str()]);
    let facts = &runs["items"][0]["facts"];
    assert_eq!((&facts["models"], &facts["backends"]), (&json!("digits"), &json!("candle")), "{facts}");
    assert!(facts["fastest_cases"].as_str().unwrap().starts_with("digits/candle-cpu-f32/"), "{facts}");
    assert!(facts["fastest_p50_ms"].as_f64().unwrap() > 0.0, "{facts}");
    for (filter, count) in [("model=net,digits&backend=candle", 2), ("model=net", 0), ("backend=ort", 0)] {
        let found = server.get(&format!("/api/v1/runs?{filter}")).json();
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{filter}: {found}");
    }
    let models = server.get("/api/v1/models").json();
    assert!(models["items"].as_array().unwrap().iter().any(|model| model["model"] == "digits"), "{models}");
    let devices = server.get("/api/v1/devices").json();
    let is_candle = |device: &&Value| device["backend"] == "candle" && device["device"] == "cpu";
    assert_eq!(devices["devices"].as_array().unwrap().iter().find(is_candle).unwrap()["available"], true);
    assert_eq!(server.get("/api/v1/suites").json()["items"], json!(["quick"]));
}

#[test]
fn the_link_of_a_report_leads_to_the_page_of_the_profile() {
    let workplace = workplace();
    let folder = workplace.path("target-reports/profiles/20260101T000000Z a");
    fs::create_dir_all(&folder).unwrap();
    let host_id = inferbench::machine::Machine::read().host_id;
    let profile = json!({ "host_id": host_id, "cases": [{ "case_id": "digits/candle-cpu-f32/1" }] });
    fs::write(folder.join("profile.json"), profile.to_string()).unwrap();
    fs::write(folder.join("profile.html"), "where the time goes").unwrap();
    let server = Server::start(&workplace, &[]);
    let id = server.submit(SHORT_JOB);
    server.wait_until(&id, "done");
    let report = server.get(&format!("/api/v1/runs/{id}/report"));
    let text = String::from_utf8_lossy(&report.body);
    let mut links = text.split("\"../").filter_map(|rest| rest.split_once("#digits%2Fcandle-cpu-f32%2F1\""));
    let (link, _) = links.next().unwrap_or_else(|| panic!("no link to the profile in {text}"));
    assert_eq!(link, "profiles/20260101T000000Z%20a/profile.html");
    // A browser resolves `..` against the path of the report.
    let page = server.get(&format!("/api/v1/runs/{link}"));
    assert_eq!((page.code, page.body.as_slice()), (200, b"where the time goes".as_slice()), "{page:?}");
    for header in ["content-type", "content-security-policy"] {
        assert_eq!(page.headers[header], report.headers[header]);
    }
    assert!(page.headers["content-security-policy"].contains("script-src 'unsafe-inline'"), "{page:?}");
    let missing = server.get("/api/v1/runs/profiles/20260102T000000Z/profile.html");
    assert!(missing.error(404).contains("no profile of that name"));
}

#[test]
fn a_job_is_cancelled_and_keeps_the_cases_that_are_finished() {
    let workplace = workplace();
    let server = Server::start(&workplace, &[]);
    let (id, run, worker) = start_to_the_middle(&server);
    assert_eq!(server.send(&head("DELETE", &format!("/api/v1/runs/{id}"), "")).code, 202);
    server.wait_until(&id, "cancelled");
    assert!(!is_alive(run) && !is_alive(worker));
    let records = server.get(&format!("/api/v1/records?run={id}")).json();
    assert_eq!(records["items"].as_array().unwrap().len(), 1, "{records}");
    assert_eq!(records["items"][0]["case_id"], "digits/candle-cpu-f32/64");
    assert!(server.send(&head("DELETE", &format!("/api/v1/runs/{id}"), "")).error(409).contains("over"));
}
